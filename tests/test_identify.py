"""identify: black boxes drawn from the family, this package's own GEMMs, XLA's, and outsiders."""

import dataclasses
import json
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest
from black_boxes import OUTSIDE, kernel_gemm, member_gemm

import mmaemu_jax as mj
from mmaemu_jax.accumulate import CONTIGUOUS_128, INTERLEAVED_64, SplitK, make_plan
from mmaemu_jax.formats import E4M3, E5M2
from mmaemu_jax.identify import (
    Arithmetic,
    Identification,
    Interface,
    Member,
    Plan,
    family_of,
    native_dot,
    profile_member,
)
from mmaemu_jax.identify.conclude import neighbours
from mmaemu_jax.identify.equivalence import canonical
from mmaemu_jax.identify.full import dense
from mmaemu_jax.testing import assert_bitwise_equal

BUDGET = 12
HOPPER_SLOW = profile_member("hopper", use_fast_accum=False)
F32, BF16, F16 = (np.dtype(t) for t in (np.float32, ml_dtypes.bfloat16, np.float16))

#: What the drawn black boxes look like from outside, and the shapes they may be asked at.
INTERFACES = {
    "f32": (Interface((E4M3, E4M3), F32), [(40, 40, 500)]),
    "bf16": (Interface((E4M3, E4M3), BF16), [(40, 40, 384)]),
    "e5m2-f16": (Interface((E5M2, E4M3), F16), [(40, 40, 384)]),
    "scaled": (Interface((E4M3, E4M3), F32, ("scale_a", "scale_b", "bias")), [(40, 40, 384)]),
    "scaled-bf16": (Interface((E4M3, E5M2), BF16, ("scale_a", "scale_b", "c")), [(40, 40, 384)]),
    "fp8": (
        Interface((E4M3, E4M3), E4M3.dtype, ("scale_a", "scale_b", "scale_result")),
        [(40, 40, 384)],
    ),
}
BOXES = [(name, seed) for name in INTERFACES for seed in range(9)][:50]


def identify(gemm, interface: Interface, shapes, **options) -> Identification:
    return mj.identify(
        gemm,
        formats=interface.formats,
        out_dtype=interface.out_dtype,
        operands=interface.operands,
        shapes=shapes,
        budget=BUDGET,
        **options,
    )


def answers(found: Identification, interface: Interface) -> set:
    return {canonical(c.members[0], interface, found.shapes) for c in found.classes}


def check_answer(found: Identification, member: Member, interface: Interface) -> None:
    """``member`` is among the answers, and no other answer differs from it on fresh operands."""
    assert found.verdict != "outside the family", f"{member}: {found}"
    assert len(found.calls) <= BUDGET
    assert canonical(member, interface, found.shapes) in answers(found, interface), (member, found)
    if found.verdict == "undecided":
        return
    m, n, k = 24, 24, found.shapes[0][2]
    a, b = dense(np.random.default_rng(99), interface.formats, (m, n, k))
    operands = (a.view(interface.formats[0].dtype), b.view(interface.formats[1].dtype).T)
    desired = member_gemm(member, interface)(*operands)
    for each in found.classes:
        actual = member_gemm(each.members[0], interface)(*operands)
        assert_bitwise_equal(actual, desired, err_msg=f"{each.members[0]} is not {member}")


# Every box is drawn and found by `make exhaustive`; CI has the time for one in five.
@pytest.mark.parametrize(
    ("name", "seed"),
    [
        pytest.param(*box, marks=[pytest.mark.exhaustive] * (i % 5 > 0))
        for i, box in enumerate(BOXES)
    ],
    ids=str,
)
def test_drawn_from_the_family(name, seed):
    interface, shapes = INTERFACES[name]
    member = family_of(interface).draw(np.random.default_rng([seed, 8]))
    found = identify(member_gemm(member, interface), interface, shapes)
    check_answer(found, member, interface)
    assert found.verdict == "identified", f"{member}: {found}"


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("name", INTERFACES)
def test_many_drawn_from_the_family(name, seed):
    interface, _ = INTERFACES[name]
    member = family_of(interface).draw(np.random.default_rng([seed, 9]))
    shapes = [(256, 256, 4096), (256, 256, 4080)]
    found = identify(member_gemm(member, interface), interface, shapes)
    check_answer(found, member, interface)


def test_the_family_is_large_and_made_of_choices():
    family = family_of(Interface((E4M3, E4M3), F32))
    assert family.size > 2000
    some = [m for m, _ in zip(family.members(), range(3000), strict=False)]
    assert len(set(some)) == 3000
    assert all(m in family for m in some[::100])
    hopper = profile_member("hopper", use_fast_accum=False, split=SplitK(4, "contiguous"))
    assert hopper in family
    assert dataclasses.replace(hopper, arithmetic=Arithmetic(frac=17)) not in family


# This package's own arithmetic, by its C++ kernels.

OWN = {
    "hopper fast": ("hopper", True, SplitK(1)),
    "hopper slow": ("hopper", False, SplitK(1)),
    "hopper split": ("hopper", False, SplitK(3, "contiguous")),
    "ada fast": ("ada", True, SplitK(1)),
    "ada slow": ("ada", False, SplitK(1)),
    "ada serial": ("ada", True, SplitK(6, "serial")),
    "ada pairwise": ("ada", False, SplitK(7, "pairwise")),
}
RULES = {"hopper": CONTIGUOUS_128, "ada": INTERLEAVED_64}


@pytest.mark.parametrize("name", OWN)
def test_own_kernels(name):
    preset, fast, split = OWN[name]
    plan = make_plan(fast, split, RULES[preset], mj.get_preset(preset).slow_chunk)
    interface = Interface((E4M3, E4M3), F32)
    gemm = kernel_gemm(mj.get_preset(preset).model, plan)
    found = identify(gemm, interface, [(64, 64, 1024)])
    assert found.verdict == "identified"
    assert len(found.classes) == 1, str(found)
    member = profile_member(preset, use_fast_accum=fast, split=split)
    key = canonical(member, interface, found.shapes)
    assert answers(found, interface) == {key}
    excluded = {w.member for w in found.witnesses}
    for change, other in neighbours(member, family_of(interface)):
        assert other in excluded or canonical(other, interface, found.shapes) == key, change


def test_own_scaled_mm():
    """The epilogue of R16 to R19 through scaled_mm, with bfloat16 output."""
    interface = Interface((E4M3, E4M3), BF16, ("scale_a", "scale_b"))

    def gemm(a, b, scale_a, scale_b):
        return mj.scaled_mm(
            a, b, scale_a, scale_b, out_dtype=BF16, use_fast_accum=True, profile="ada", splitk=1
        )

    found = identify(gemm, interface, [(64, 64, 512)])
    assert found.verdict == "identified"
    assert len(found.classes) == 1, str(found)
    member = profile_member("ada", use_fast_accum=True)
    assert answers(found, interface) == {canonical(member, interface, found.shapes)}


# XLA's own dot. docs/identify.md says what is found here.

#: (restart, pairs swapped, NaN) by version of jax and output dtype.
FLOAT32 = (512, False, "signed")
XLA = {
    "0.10.2": {F32: FLOAT32, BF16: FLOAT32, F16: FLOAT32},
    "0.12.0.1": {F32: FLOAT32, BF16: (1024, True, "signed odd"), F16: FLOAT32},
}


def measured_cpu() -> bool:
    """Whether XLA has the same instructions here as where the above was found."""
    info = Path("/proc/cpuinfo")
    flags = set(info.read_text().split()) if info.exists() else set()
    return "avx512f" in flags and not flags & {"avx512_bf16", "amx_bf16", "amx_tile"}


@pytest.mark.parametrize("dtype", [F32, BF16, F16], ids=str)
def test_xla_cpu_dot(dtype):
    found = identify(native_dot(dtype), Interface((E4M3, E4M3), dtype), [(64, 64, 1040)])
    if jax.__version__ not in XLA or not measured_cpu():
        assert found.member or found.counterexample
        return
    assert found.verdict == "identified", str(found)
    assert len(found.classes) == 1
    plan, step, nan = found.member.plan, found.member.arithmetic, found.member.epilogue.nan
    assert (plan.restart.tile, plan.swapped, nan) == XLA[jax.__version__][dtype]
    assert (plan.block, step.add, step.subnormals) == (1, "f32", "gradual")
    assert plan.lanes.is_whole
    assert plan.split.is_whole


# Outside the family.


@pytest.mark.parametrize("gemm", OUTSIDE, ids=lambda f: f.__name__)
def test_outside_the_family(gemm):
    interface = Interface((E4M3, E4M3), F32)
    found = identify(gemm, interface, [(48, 48, 512)])
    assert found.verdict == "outside the family", str(found)
    assert len(found.calls) <= BUDGET
    assert not found.classes
    example, nearest = found.counterexample, found.nearest
    assert example is not None
    assert nearest is not None
    assert "smallest counterexample" in str(found)
    a, b = np.zeros((48, 512), np.uint8), np.zeros((48, 512), np.uint8)
    row, column = example.output
    a[row, list(example.positions)], b[column, list(example.positions)] = example.a, example.b
    operands = a.view(E4M3.dtype), b.view(E4M3.dtype).T
    assert gemm(*operands).view(np.uint32)[row, column] == example.seen
    said = member_gemm(nearest, interface)(*operands).view(np.uint32)[row, column]
    assert said == example.expected != example.seen


# The answer as data and text.


def test_report_and_json():
    interface = Interface((E4M3, E4M3), F32)
    said: list[str] = []
    gemm = member_gemm(HOPPER_SLOW, interface)
    found = identify(gemm, interface, [(48, 48, 512)], progress=said.append)
    assert said
    assert Identification.from_json(found.to_json()) == found
    assert json.loads(found.to_json())["verdict"] == "identified"
    text = str(found)
    assert "restart every 128, blocks of 32, 13 bits truncate, result 13 bits truncate" in text
    assert "not 14 bits truncate" in text
    assert "not restart every 64" in text
    assert found.member == HOPPER_SLOW


def test_witnesses_hold():
    interface = Interface((E4M3, E4M3), F32)
    gemm = member_gemm(HOPPER_SLOW, interface)
    found = identify(gemm, interface, [(48, 48, 512)])
    assert len(found.witnesses) > 30
    for witness in found.witnesses[::6]:
        example = witness.example
        a, b = (np.zeros((1, 512), np.uint8) for _ in "ab")
        a[0, list(example.positions)], b[0, list(example.positions)] = example.a, example.b
        operands = a.view(E4M3.dtype), b.view(E4M3.dtype).T
        assert gemm(*operands).view(np.uint32)[0, 0] == example.seen
        other = member_gemm(witness.member, interface)(*operands).view(np.uint32)[0, 0]
        assert other == example.expected != example.seen


def test_a_small_budget_is_said():
    interface = Interface((E4M3, E4M3), BF16)
    gemm = member_gemm(HOPPER_SLOW, interface)
    found = mj.identify(gemm, out_dtype=BF16, shapes=[(48, 48, 512)], budget=4)
    assert len(found.calls) <= 4
    assert canonical(HOPPER_SLOW, interface, found.shapes) in answers(found, interface)
    found = mj.identify(gemm, out_dtype=BF16, shapes=[(2, 8, 4096)], budget=3)
    assert found.verdict == "undecided"
    assert found.member is None
    assert "allow more" in str(found)
    assert Identification.from_json(found.to_json()) == found


@pytest.mark.parametrize("shape", [(1, 1, 2), (3, 5, 7), (1, 1, 512)], ids=str)
def test_tiny_shapes(shape):
    interface = Interface((E4M3, E4M3), F32)
    member = Member(Plan(1, True))
    found = identify(member_gemm(member, interface), interface, [shape])
    assert found.verdict != "outside the family"
    assert len(found.calls) <= BUDGET
    if found.classes:
        assert canonical(member, interface, found.shapes) in answers(found, interface)


@pytest.mark.parametrize("shape", [(1, 128, 384), (128, 2, 384), (12, 40, 384)], ids=str)
def test_few_rows_or_columns(shape):
    """One row is asked as many questions as there are columns."""
    interface = Interface((E4M3, E4M3), BF16)
    found = identify(member_gemm(HOPPER_SLOW, interface), interface, [shape])
    assert found.verdict == "identified", str(found)
    assert answers(found, interface) == {canonical(HOPPER_SLOW, interface, found.shapes)}


def test_layouts():
    interface = Interface((E4M3, E4M3), F32)
    gemm = member_gemm(HOPPER_SLOW, interface)
    found = mj.identify(lambda a, b: gemm(a, b.T), shapes=[(16, 32, 256)], b_layout="nk")
    assert found.verdict != "outside the family"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"formats": "bf16"}, TypeError),
        ({"formats": ("e4m3",) * 3}, ValueError),
        ({"out_dtype": np.float64}, ValueError),
        ({"shapes": []}, ValueError),
        ({"shapes": [(1, 2)]}, ValueError),
        ({"shapes": [(0, 2, 3)]}, ValueError),
        ({"budget": 0}, ValueError),
        ({"budget": 1.5}, TypeError),
        ({"operands": ["alpha"]}, ValueError),
        ({"operands": ["scale_result"]}, ValueError),
        ({"b_layout": "mn"}, ValueError),
    ],
    ids=str,
)
def test_arguments(options, error):
    with pytest.raises(error, match="identify"):
        mj.identify(lambda a, b: a, **options)


def test_a_gemm_that_is_not_repeatable_is_told():
    rng = np.random.default_rng(0)

    def gemm(a, b):
        order = rng.permutation(a.shape[1])
        return OUTSIDE[0](a[:, order], b[order])

    found = mj.identify(gemm, shapes=[(24, 24, 256)])
    assert found.verdict == "outside the family"
    assert "not repeatable" in str(found)


def test_a_gemm_that_ignores_its_operands_is_told():
    found = mj.identify(lambda a, b: np.zeros((24, 24), np.float32), shapes=[(24, 24, 256)])
    assert found.verdict == "outside the family"
    assert "every output is 0x0" in str(found)


def test_what_the_gemm_raises_comes_through():
    with pytest.raises(TypeError, match="e5m2 only") as raised:
        mj.identify(_raising, shapes=[(4, 6, 8)])
    assert "a float8_e4m3fn[4, 8], b float8_e4m3fn[8, 6]" in raised.value.__notes__[0]


def test_operands_that_are_ignored_are_told():
    plain = member_gemm(HOPPER_SLOW, Interface((E4M3, E4M3), F32))
    found = mj.identify(
        lambda a, b, scale_a, scale_b, bias: plain(a, b, scale_a=scale_a, bias=bias),
        operands=("scale_a", "scale_b", "bias"),
        shapes=[(24, 24, 256)],
    )
    assert found.verdict == "outside the family"
    assert "do not depend on scale_b" in str(found)


def _raising(a, b):
    raise TypeError("e5m2 only")


def test_a_result_of_another_kind():
    with pytest.raises(ValueError, match=r"must return float32\[4, 6\].*got float64\[4, 6\]"):
        mj.identify(lambda a, b: np.zeros((4, 6)), shapes=[(4, 6, 8)])
