"""What classify says to people: how much it looked at, in which call's words, what it assumed."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from black_boxes import member_gemm

import mmaemu_jax as mj
from mmaemu_jax.formats import E4M3
from mmaemu_jax.identify import Interface, Parts, classify, profile_member
from mmaemu_jax.testing import operands

FAST = profile_member("hopper", use_fast_accum=True)
SCALES: dict[str, Any] = {"scale_a": np.float32(0.03), "scale_b": np.float32(0.7)}


def given(m=24, n=32, k=1024):
    a, b = operands("randn", E4M3, E4M3, m, n, k, 5)
    return a.view(E4M3.dtype), b.view(E4M3.dtype)


def scaled(a, b, **options):
    options = {"use_fast_accum": True, "profile": "hopper", "splitk": 1, **options}
    scales = (options.pop("scale_a", SCALES["scale_a"]), options.pop("scale_b", SCALES["scale_b"]))
    out_dtype = options.pop("out_dtype", jnp.bfloat16)
    return np.array(mj.scaled_mm(a, b.T, *scales, out_dtype=out_dtype, **options))


@pytest.mark.parametrize("out_dtype", [jnp.float32, jnp.bfloat16])
def test_a_scaled_gemm_looks_unexplained_until_its_scales_are_passed(out_dtype):
    a, b = given()
    seen = scaled(a, b, out_dtype=out_dtype)
    blind = classify(a, b, seen, FAST)
    assert (blind.given, blind.explanations) == ((), ())
    assert blind.differing > 0
    name = np.dtype(out_dtype).name
    assert str(blind).splitlines()[1:] == [
        "  no change of the model explains any of them",
        f"  it was taken for a GEMM without scales and bias, rounded to {name}",
        "  if it has more operands, pass them too: scale_a, scale_b, bias",
    ]
    told = classify(a, b, seen, FAST, **SCALES)
    assert (told.given, told.differing) == (("scale_a", "scale_b"), 0)
    assert "pass them" not in str(told)


def test_what_is_missing_depends_on_what_was_given():
    a, b = given(16, 16, 96)
    seen = scaled(a, b, out_dtype=E4M3.dtype, scale_result=np.float32(2))
    seen.view(np.uint8)[3, 4] ^= 0x40
    found = classify(a, b, seen, FAST, **SCALES)
    assert "rounded to float8_e4m3fn" in str(found)
    assert str(found).endswith("pass them too: scale_result, bias")
    everything = SCALES | {"scale_result": np.float32(2), "bias": np.zeros(16, np.float32)}
    found = classify(a, b, seen, FAST, **everything)
    assert (found.differing, found.explanations) == (1, ())
    assert str(found).endswith(
        "with scale_a, scale_b, scale_result, bias, rounded to float8_e4m3fn"
    )


CALLS = (
    "profile='hopper', use_fast_accum=False, splitk=1",
    "profile='hopper', use_fast_accum=True, splitk=(3, 'contiguous')",
    "profile='ada', use_fast_accum=True, splitk=1",
)


def options_of(call: str) -> dict:
    return eval(f"dict({call})")


@pytest.mark.parametrize("call", CALLS)
def test_an_explanation_is_named_as_a_call(call):
    a, b = given()
    seen = scaled(a, b, out_dtype=jnp.float32, **options_of(call))
    found = classify(a, b, seen, FAST, **SCALES)
    best = found.explanations[0]
    assert best.calls[0] == call
    assert best.explained == found.differing
    assert f"    that is {call}" in str(found).splitlines()


@pytest.mark.parametrize("expected_fast", [True, False])
def test_another_accumulation_and_another_split_at_once(expected_fast):
    """torch's default is slow: who expects fast and does not know the split has two changes."""
    a, b = given()
    options = {"profile": "ada", "use_fast_accum": not expected_fast, "splitk": (5, "serial")}
    seen = scaled(a, b, out_dtype=jnp.float32, **options)
    expected = profile_member("ada", use_fast_accum=expected_fast)
    found = classify(a, b, seen, expected, **SCALES)
    said = "restart every 128" if expected_fast else "no restart"
    best = [e for e in found.explanations if e.explained == found.differing]
    assert f"split-K 5 (interleaved tiles of 64, serial) and {said}" in [e.change for e in best]
    assert any(options == options_of(call) for e in best for call in e.calls)


def test_calls_that_are_one_computation_are_all_named():
    """At K = 1024 slow accumulation is a split of the fast one in 8 (R11, R13)."""
    a, b = given()
    seen = scaled(a, b, out_dtype=jnp.float32, use_fast_accum=False)
    best = classify(a, b, seen, FAST, **SCALES).explanations[0]
    fast_8 = "profile='hopper', use_fast_accum=True, splitk=(8, 'contiguous')"
    assert {"profile='hopper', use_fast_accum=False, splitk=1", fast_8} < set(best.calls)
    for call in best.calls:
        again = scaled(a, b, out_dtype=jnp.float32, **options_of(call))
        mj.testing.assert_bitwise_equal(again, seen)


def test_a_change_that_is_no_call_has_none():
    a, b = given()
    every_64 = dataclasses.replace(FAST, plan=dataclasses.replace(FAST.plan, restart=Parts(0, 64)))
    seen = member_gemm(every_64, Interface((E4M3, E4M3), np.dtype(np.float32)))(a, b.T)
    found = classify(a, b, seen, FAST)
    best = found.explanations[0]
    assert (best.change, best.calls) == ("restart every 64", ())
    assert "that is" not in str(found).splitlines()[2]


def test_it_says_how_much_it_looked_at():
    a, b = given(64, 64, 512)
    seen = scaled(a, b, out_dtype=jnp.float32, splitk=(2, "contiguous"))
    found = classify(a, b, seen, FAST, **SCALES)
    assert found.size == 64 * 64
    assert found.differing == 256 < found.outputs
    head = f"{found.outputs} of 4,096 outputs looked at, of these 256 differ from the expected"
    assert str(found).startswith(head)


def test_scales_of_rows_are_refused():
    a, b = given(8, 8, 96)
    seen = mj.host.accumulate(a, b, use_fast_accum=True, splitk=1)
    with pytest.raises(ValueError, match=r"classify: scale_a must have one element.*\(8, 1\)"):
        classify(a, b, seen, FAST, scale_a=np.ones((8, 1), np.float32))
