"""NaN and Inf (R14), with the accumulator, chunks and splits."""

import numpy as np
import pytest
from reference_calls import bits, codes, oracle_bits, reference_bits, stacked

from mmaemu_jax.accumulate import ONE_CHAIN, AccumulationPlan
from mmaemu_jax.formats import E4M3, E5M2, FORMATS
from mmaemu_jax.instruction import ADA, B200_MMA_SYNC, HOPPER
from mmaemu_jax.testing.cases import operands

INF, NAN, BIG = np.inf, np.nan, 57344.0
CANONICAL = 0x7FFFFFFF


@pytest.mark.parametrize(
    ("model", "fmt_a", "fmt_b"),
    [
        *((HOPPER.model, x, y) for x in FORMATS for y in FORMATS),
        (B200_MMA_SYNC.model, E5M2, E4M3),
    ],
    ids=lambda v: getattr(v, "name", None),
)
def test_specials_of_any_code_and_accumulator(model, fmt_a, fmt_b):
    a, b = stacked(("special_values", "uniform"), fmt_a, fmt_b, 8, 8, 50, seed=1, finite=False)
    c = np.resize(np.float32([0, 1, -(2.0**-140), -0.0, INF, -INF, NAN]).view(np.uint32), (2, 8, 8))
    arguments = (a, b, fmt_a, fmt_b)
    got = reference_bits(*arguments, c=c, model=model)
    np.testing.assert_array_equal(got, oracle_bits(*arguments, c=c, model=model))


#: name: (a, b, c, expected bits). Factors are E5M2.
FACTS = {
    "NaN times zero": ([NAN], [0], 0, CANONICAL),
    "zero times NaN": ([0], [NAN], 0, CANONICAL),
    "Inf times zero": ([INF], [0], 0, CANONICAL),
    "Inf times a subnormal": ([INF], [-(2.0**-16)], 0, 0xFF800000),
    "Inf times Inf": ([-INF], [-INF], 0, 0x7F800000),
    "Inf and -Inf": ([INF, -INF], [1, 1], 0, CANONICAL),
    "Inf outweighs the largest": ([INF, *[-BIG] * 15], [1, *[BIG] * 15], 0, 0x7F800000),
    "the largest sum is finite": ([BIG] * 16, [BIG] * 16, 2.0**127, bits(2.0**127)),
    "a NaN accumulator": ([1], [1], NAN, CANONICAL),
    "an infinite accumulator": ([1], [1], -INF, 0xFF800000),
    "an infinite accumulator and Inf": ([INF], [1], INF, 0x7F800000),
    "an infinite accumulator and -Inf": ([-INF], [1], INF, CANONICAL),
}


@pytest.mark.parametrize("preset", [ADA, B200_MMA_SYNC], ids=lambda p: p.name)
@pytest.mark.parametrize("fact", FACTS)
def test_fact(fact, preset):
    a, b, c, expected = FACTS[fact]
    padding = [0] * (preset.nfma - len(a))
    a, b = codes_with_specials([[*a, *padding]]), codes_with_specials([[*b, *padding]])
    c = np.array([[bits(c)]], np.uint32)
    arguments = (a, b, E5M2, E5M2)
    assert oracle_bits(*arguments, c=c, model=preset.model).item() == expected
    assert reference_bits(*arguments, c=c, model=preset.model).item() == expected


def codes_with_specials(values):
    values = np.asarray(values, np.float32)
    finite = codes(E5M2, np.where(np.isfinite(values), values, 0))
    return np.where(np.isfinite(values), finite, values.astype(E5M2.dtype).view(np.uint8))


@pytest.mark.parametrize(
    "plan", [AccumulationPlan(128), AccumulationPlan(0, 3, 64, True, True)], ids=["slow", "split"]
)
def test_specials_meet_across_chunks_and_splits(plan):
    a, b = operands("randn", E5M2, E4M3, 4, 4, 300, seed=0)
    infinity = 0x7C
    a[0, 10], a[1, 200], a[2, 70], a[2, 280] = infinity, 0xFF, infinity, infinity
    b[:, [10, 70]] = 0x38  # +1
    b[:, 280] = [0xB8, 0x38, 0x00, 0x38]  # -1, 1, 0, 1
    got = reference_bits(a, b, E5M2, E4M3, model=ADA.model, plan=plan)
    np.testing.assert_array_equal(got[0], [0x7F800000] * 4)
    np.testing.assert_array_equal(got[1], [CANONICAL] * 4)
    np.testing.assert_array_equal(got[2], [CANONICAL, 0x7F800000, CANONICAL, 0x7F800000])
    np.testing.assert_array_equal(got, oracle_bits(a, b, E5M2, E4M3, model=ADA.model, plan=plan))


def test_a_special_stays_in_its_row_and_column():
    a, b = operands("randn", E4M3, E4M3, 5, 5, 64, seed=2)
    clean = reference_bits(a, b, E4M3, E4M3, model=HOPPER.model, plan=ONE_CHAIN)
    a[1, 3], b[4, 60] = 0x7F, 0xFF
    got = reference_bits(a, b, E4M3, E4M3, model=HOPPER.model, plan=ONE_CHAIN)
    hit = np.zeros((5, 5), bool)
    hit[1], hit[:, 4] = True, True
    np.testing.assert_array_equal(got, np.where(hit, CANONICAL, clean))
