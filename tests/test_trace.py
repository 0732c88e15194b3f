"""trace_dot: its result has the kernels' bits, and its parts add up."""

from fractions import Fraction

import numpy as np
import pytest

import mmaemu_jax as mj
from mmaemu_jax.formats import E4M3, E5M2
from mmaemu_jax.testing import cases

PRESETS = ("ada", "hopper", mj.Preset("late", 8, 20, 23, -100, late_c=True))


def name_of(preset) -> str:
    return preset if isinstance(preset, str) else preset.name


@pytest.mark.parametrize("preset", PRESETS, ids=name_of)
@pytest.mark.filterwarnings("ignore::mmaemu_jax.errors.ExperimentalPresetWarning")
def test_result_has_the_kernels_bits(preset):
    compared = 0
    for case in cases(shapes=[(3, 3, 70)]):
        a, b = case.a.view(case.fmt_a.dtype), case.b.view(case.fmt_b.dtype)
        c = np.array([0, 3.1415927, -1e-20], np.float32)
        desired = mj.host.dot(a, b, c, preset=preset)
        for i in range(3):
            trace = mj.trace_dot(a[i], b[i], c[i], preset=preset)
            assert trace.result.view(np.uint32) == desired[i].view(np.uint32), case.name
            compared += 1
    assert compared > 100


@pytest.mark.parametrize("preset", ["ada", "hopper"])
def test_parts_add_up(preset):
    rng = np.random.default_rng(0)
    a = (rng.standard_normal(100) * 2.0 ** rng.integers(-6, 6, 100)).astype(E4M3.dtype)
    b = (rng.standard_normal(100) * 40).astype(E5M2.dtype)
    trace = mj.trace_dot(a, b, preset=preset)
    model = mj.get_preset(preset).model
    assert len(trace.blocks) == -(-100 // model.nfma)
    exact = sum(
        (Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a, b, strict=True)), Fraction(0)
    )
    assert trace.lost == exact - Fraction(float(trace.result))
    assert trace.lost != 0
    for block in trace.blocks:
        unit = Fraction(2) ** (block.exponent - model.frac)
        assert block.exponent == max(t.exponent for t in block.terms)
        assert block.total == sum((t.aligned for t in block.terms), Fraction(0))
        for term in block.terms:
            assert term.aligned % unit == 0
            assert abs(term.lost) < unit
            assert term.lost * term.value >= 0  # toward zero
    assert [b.c for b in trace.blocks[1:]] == [b.result for b in trace.blocks[:-1]]


def test_text():
    trace = mj.trace_dot(np.full(40, 1.5), np.full(40, -0.0625), fmt="e4m3", preset="ada")
    lines = str(trace).splitlines()
    assert len(lines) == 5
    assert lines[-1] == "result -3.75, lost 0"


def test_silent_blocks_are_left_out():
    a = np.zeros(64, np.float32)
    a[40] = 3
    trace = mj.trace_dot(a, np.ones(64, np.float32), fmt="e4m3", preset="ada")
    assert [(b.start, b.exponent) for b in trace.blocks] == [(32, 1)]
    assert trace.result == 3


def test_a_block_without_products_cuts_the_accumulator():
    c = np.float32(3.1415927)  # has 24 bits, of which the first block keeps 14
    a = np.zeros(64, np.float32)
    a[20] = 2
    trace = mj.trace_dot(a, np.ones(64, np.float32), c, fmt="e4m3", preset="ada")
    assert trace.lost == 2 + Fraction(float(c)) - Fraction(float(trace.result))
    assert trace.lost == Fraction(2011, 4194304)
    assert [b.start for b in trace.blocks] == [0, 16]  # those after 32 lose nothing
    assert [len(b.terms) for b in trace.blocks] == [1, 2]


@pytest.mark.parametrize(
    ("a", "c", "error"),
    [
        (np.zeros((2, 3), np.float32), None, ValueError),
        (np.array([np.nan], np.float32), None, ValueError),
        (np.zeros(3, np.float32), np.float32(np.inf), ValueError),
        ([0.0], None, TypeError),
    ],
)
def test_refusals(a, c, error):
    with pytest.raises(error, match=r"trace_dot|dot: "):
        mj.trace_dot(a, a, c, fmt="e4m3")
