"""scaled_mm: what it hands to the primitive, empty GEMMs, tracing and warnings."""

import subprocess
import sys
import warnings

import api_calls
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from api_calls import B200, BF16, E4M3, E5M2, E8M0, FNUZ, f32, record_bind, scaled_mm, zeros
from jax import export

import mmaemu_jax as mj
from mmaemu_jax import api, errors, prepare
from mmaemu_jax.accumulate import AccumulationPlan
from mmaemu_jax.errors import (
    ExperimentalPresetWarning,
    ReferenceRejectsError,
    SplitKUnknownError,
    UnsupportedFeatureError,
    UnverifiedSplitWarning,
)
from mmaemu_jax.testing import assert_bitwise_equal


@pytest.fixture
def bound(monkeypatch):
    return record_bind(monkeypatch)


# The table of contents


def test_what_the_package_exports():
    assert mj.errors is errors
    for name in ("scaled_mm", "accumulate", "dot", "quantize", "resolve_splitk"):
        assert getattr(mj, name).__name__ == name
    assert callable(mj.testing.assert_bitwise_equal)


def test_importing_changes_nothing_else():
    code = (
        "import os, threading, numpy as np, jax\n"
        "state = lambda: (dict(os.environ), threading.active_count(), dict(jax.config.values), "
        "np.geterr())\n"
        "before = state()\n"
        "import mmaemu_jax\n"
        "assert state() == before"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_the_signature_is_torchs():
    code = mj.scaled_mm.__code__
    assert code.co_varnames[: code.co_argcount] == (
        "input", "mat2", "scale_a", "scale_b", "bias", "scale_result", "out_dtype",
        "use_fast_accum",
    )  # fmt: skip
    assert mj.scaled_mm.__defaults__ == (None, None, None, False)


# What reaches the primitive


def test_a_call_hands_on_its_operands_and_plan(bound):
    y = scaled_mm(use_fast_accum=True, profile="ada", splitk=(3, "pairwise"))
    assert (y.shape, y.dtype) == ((32, 16), jnp.bfloat16)
    (call,) = bound
    a, b, scale_a, scale_b, scale_result, c = call.pop("operands")
    assert (a.shape, b.shape, scale_result, c) == ((32, 48), (48, 16), None, None)
    assert_bitwise_equal(np.asarray(scale_a), f32(0.5))
    assert_bitwise_equal(np.asarray(scale_b), f32(0.25))
    assert call == {
        "model": mj.get_preset("ada").model,
        "plan": AccumulationPlan(0, 3, 64, interleaved=True, pairwise=True),
        "out_dtype": np.dtype(BF16),
        "b_layout": "kn",
        "backend": "auto",
    }


def test_defaults_are_torchs(bound):
    mj.scaled_mm(zeros(32, 48), zeros(48, 16), 1.0, 1.0, splitk=1)
    assert bound[0]["out_dtype"] == np.dtype(E4M3)
    assert bound[0]["plan"] == AccumulationPlan(chunk_k=128)
    assert bound[0]["model"] == mj.get_profile().arithmetic.model


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (1, 1, 1)])
def test_scales_of_one_element(bound, shape):
    values = [f32(2.0, *shape), jnp.asarray(f32(2.0, *shape))]
    values += [2.0, np.float32(2.0)] if shape == () else []
    for scale in values:
        scaled_mm(scale_a=scale, scale_b=scale, scale_result=scale, out_dtype="e4m3")
    for call in bound:
        for scale in call["operands"][2:5]:
            assert_bitwise_equal(np.asarray(scale), f32(2.0))


def test_scales_keep_every_bit(bound):
    patterns = [0x80000000, 0x00000001, 0x807FFFFF, 0x7F800000, 0xFF800000, 0x7FC00001, 0x7F7FFFFF]
    for pattern in patterns:
        value = np.uint32(pattern).view(np.float32)
        for scale in (value, value.reshape(1), jnp.asarray(value)):
            scaled_mm(scale_a=scale)
            assert_bitwise_equal(np.asarray(bound[-1]["operands"][2]), np.asarray(value))
    ties = [1.5 * 2.0**-148, 0.5 * 2.0**-149, 1 + 2.0**-24, -0.0, 1e300]
    with np.errstate(over="ignore"):
        for scale in ties:
            scaled_mm(scale_a=scale)
            assert_bitwise_equal(
                np.asarray(bound[-1]["operands"][2]), np.asarray(np.float32(scale))
            )


def test_scale_result_only_reaches_float8_outputs(bound):
    for out in ("float32", "bfloat16", "float16"):
        scaled_mm(scale_result=3.0, out_dtype=out)
        assert bound[-1]["operands"][4] is None
    scaled_mm(scale_result=3.0, out_dtype=E4M3)
    assert_bitwise_equal(np.asarray(bound[-1]["operands"][4]), f32(3.0))


def test_traced_and_batched_arguments(bound):
    a, b = zeros(5, 32, 48), zeros(48, 16)
    jitted = jax.jit(lambda a, b, s, t: mj.scaled_mm(a, b, s, t, out_dtype="bfloat16", splitk=1))
    assert jitted(a[0], b, 0.5, np.float32(2)).shape == (32, 16)
    assert not bound[-1]["operands"][2].weak_type
    assert jax.vmap(jitted, (0, None, 0, None))(a, b, f32(1, 5), 1.0).shape == (5, 32, 16)
    shapes = jax.eval_shape(jitted, a[0], b, f32(1), f32(1))
    assert (shapes.shape, shapes.dtype) == ((32, 16), jnp.bfloat16)


def test_symbolic_dimensions_with_an_explicit_split(bound):
    m, k = export.symbolic_shape("m, 16*k")
    args = [jax.ShapeDtypeStruct(s, E4M3) for s in ((m, k), (k, 32))]
    for splitk, profile in ((1, None), ((2, "serial"), "ada")):
        out = jax.eval_shape(
            lambda a, b, s=splitk, p=profile: mj.scaled_mm(a, b, 1.0, 1.0, splitk=s, profile=p),
            *args,
        )
        assert out.shape == (m, 32)
    (q,) = export.symbolic_shape("q")
    args = [jax.ShapeDtypeStruct(s, E4M3) for s in ((m, q), (q, 32))]
    with pytest.raises(
        ReferenceRejectsError, match=r"K must be a multiple of 16, got K = q.*'16\*k'"
    ):
        jax.eval_shape(lambda a, b: mj.scaled_mm(a, b, 1.0, 1.0, splitk=1), *args)


def test_the_backend_is_checked_even_when_nothing_is_computed(monkeypatch):
    seen = []
    for module in (api, prepare):
        monkeypatch.setattr(module, "check_backend", lambda *args: seen.append(args))
    scaled_mm(input=zeros(0, 48), backend="nonsense")
    mj.accumulate(zeros(0, 3), zeros(2, 3), use_fast_accum=True, backend="nonsense")
    mj.dot(zeros(0, 3), zeros(0, 3), backend="nonsense")
    assert seen == [(name, "nonsense") for name in ("scaled_mm", "accumulate", "dot")]


# Empty GEMMs (R15)

OUT_DTYPES = (
    "float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
    "float8_e5m2fnuz", "float64", "int8", "int64",
)  # fmt: skip


@pytest.mark.parametrize("shape", [(0, 16, 32), (16, 0, 32), (16, 16, 0), (3, 16, 0), (0, 0, 0)])
def test_an_empty_gemm_is_zeros_of_any_dtype(bound, shape):
    m, n, k = shape
    pairs = [(E4M3, E4M3), (E5M2, E4M3), (FNUZ, E5M2), (E8M0, ml_dtypes.float8_e5m2fnuz)]
    for a, b in pairs:
        for out in OUT_DTYPES:
            operands = {"input": zeros(m, k, dtype=a), "mat2": zeros(k, n, dtype=b)}
            y = scaled_mm(**operands, out_dtype=out, scale_a=float("nan"), splitk="auto")
            assert_bitwise_equal(np.asarray(y), np.zeros((m, n), np.dtype(out)))
    assert not bound


def test_an_empty_gemm_still_passes_torchs_checks(bound):
    empty = {"input": zeros(16, 0), "mat2": zeros(0, 16)}
    y = scaled_mm(**empty, bias=np.zeros(16, BF16), scale_result=2.0, profile=B200)
    assert_bitwise_equal(np.asarray(y), np.zeros((16, 16), BF16))
    scaled_mm(**empty, scale_a=f32(1, 16, 1), scale_b=f32(1, 1, 16), out_dtype="float32")
    for changes in (
        {"scale_a": np.float64(1)},
        {"mat2": zeros(0, 8)},
        {"mat2": zeros(0, 16, dtype=E5M2), "input": zeros(16, 0, dtype=E5M2)},
        {"bias": np.zeros(16, np.float32)},
        {"input": zeros(16, 0, dtype=np.float32)},
    ):
        with pytest.raises(ReferenceRejectsError):
            scaled_mm(**{**empty, **changes})


# Trace time


def test_everything_static_raises_while_tracing(bound):
    def trace(**changes):
        arrays = {"input": zeros(32, 48), "mat2": zeros(48, 16), "scale_a": f32(1)}
        arrays |= {
            k: changes.pop(k) for k in tuple(changes) if k in ("input", "mat2", "scale_a", "bias")
        }
        jax.jit(lambda arrays: scaled_mm(**arrays, **changes)).lower(arrays)

    for changes, error in (
        ({"mat2": zeros(16, 48)}, ReferenceRejectsError),
        ({"input": zeros(32, 48, dtype=FNUZ)}, ReferenceRejectsError),
        ({"scale_a": f32(1, 2)}, ReferenceRejectsError),
        ({"bias": np.zeros(16, BF16)}, UnsupportedFeatureError),
        ({"splitk": "auto"}, SplitKUnknownError),
        ({"profile": "nope"}, ValueError),
        ({"use_fast_accum": 1}, TypeError),
    ):
        with pytest.raises(error, match=r"^scaled_mm: "):
            trace(**changes)
    with pytest.raises(TypeError, match=r"use_fast_accum must be a bool, .*static argument"):
        jax.jit(lambda fast: scaled_mm(use_fast_accum=fast))(True)
    assert not bound


# Warnings


def caught(function, *args, **kwargs):
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        function(*args, **kwargs)
    assert {record.filename for record in records} <= {__file__, api_calls.__file__}
    assert all("Ways out" in str(record.message) for record in records)
    return [record.category for record in records]


def test_experimental_presets_and_profiles_warn_once(bound):
    a = zeros(32, 48)
    for profile in (B200, "hopper-experimental", mj.Profile("mine", "hopper")):
        assert caught(scaled_mm, use_fast_accum=True, profile=profile) == [
            ExperimentalPresetWarning
        ]
        accumulate = {"use_fast_accum": True, "profile": profile, "splitk": 1}
        assert caught(mj.accumulate, a, a, **accumulate) == [ExperimentalPresetWarning]
    for preset in ("b200_mma_sync", "blackwell", mj.Preset("mine", 4, 20, 20, -126)):
        assert caught(mj.dot, a, a, preset=preset) == [ExperimentalPresetWarning]
    for profile in ("hopper", "ada", "hopper-te", "ada-ws0"):
        assert caught(scaled_mm, profile=profile) == []
    assert caught(mj.dot, a, a, preset="hopper") == []


def test_nothing_computed_warns_nothing(bound):
    assert caught(scaled_mm, input=zeros(0, 48), use_fast_accum=True, profile=B200) == []
    assert caught(mj.accumulate, zeros(0, 3), zeros(3, 3), use_fast_accum=True, profile=B200) == []


def test_unverified_splits_warn_once(bound):
    assert caught(scaled_mm, splitk="auto_or_unsplit") == [UnverifiedSplitWarning]
    assert caught(scaled_mm, splitk=(4, "contiguous")) == [UnverifiedSplitWarning]
    both = caught(scaled_mm, splitk=(2, "contiguous"), profile="hopper-experimental")
    assert both == [ExperimentalPresetWarning, UnverifiedSplitWarning]


def test_warnings_point_at_the_users_line_under_jit(bound):
    call = lambda: scaled_mm(splitk="auto_or_unsplit")  # noqa: E731
    assert caught(jax.jit(call)) == [UnverifiedSplitWarning]
    direct = jax.jit(mj.scaled_mm, static_argnames="splitk")
    arrays = zeros(32, 48), zeros(48, 16), f32(1), f32(1)
    assert caught(direct, *arrays, splitk="auto_or_unsplit") == [UnverifiedSplitWarning]
