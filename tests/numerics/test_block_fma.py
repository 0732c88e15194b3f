"""One block step (R3 to R8), against the fractions oracle and against facts derived by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
from reference_calls import bits, codes, oracle_bits, reference_bits, stacked

from mmaemu_jax.errors import BackendUnavailableError
from mmaemu_jax.formats import E4M3, E5M2, FORMATS
from mmaemu_jax.instruction import ADA, B200_MMA_SYNC, HOPPER, InstructionModel
from mmaemu_jax.reference import block_fma
from mmaemu_jax.testing.cases import families

#: Extreme but legal: coarse, one product, a floor above every term, wide sums late and early.
COARSE = InstructionModel(5, 3, 7, -20, False)
ONE_PRODUCT = InstructionModel(1, 1, 1, -1000, False)
HIGH_FLOOR = InstructionModel(3, 20, 20, 12, False)
WIDE_LATE = InstructionModel(7, 40, 23, -149, True)
WIDEST = InstructionModel(1024, 40, 23, -132, False)

#: Accumulators to start from: zeros, subnormal, around the products, far above and far below.
C_VALUES = [0.0, -0.0, 2.0**-149, -(2.0**-127), 2.0**-30, -1.0, 2.0**14, -(2.0**40), 3.3e38, 1.7]
C_BITS = np.float32(C_VALUES).view(np.uint32)

SETTINGS = [
    *((HOPPER.model, x, y) for x in FORMATS for y in FORMATS),
    (ADA.model, E4M3, E5M2),
    (B200_MMA_SYNC.model, E5M2, E5M2),
    (B200_MMA_SYNC.model, E4M3, E4M3),
    (COARSE, E4M3, E5M2),
    (ONE_PRODUCT, E5M2, E4M3),
    (HIGH_FLOOR, E4M3, E4M3),
    (WIDE_LATE, E5M2, E5M2),
]


@pytest.mark.parametrize(
    ("model", "fmt_a", "fmt_b"), SETTINGS, ids=lambda v: getattr(v, "name", None)
)
def test_two_blocks_of_every_family_from_any_accumulator(model, fmt_a, fmt_b):
    m, n, k = 2, 5, 2 * model.nfma
    a, b = stacked(families(), fmt_a, fmt_b, m, n, k, seed=3)
    c = np.resize(C_BITS, (len(a), m, n))
    arguments = (a, b, fmt_a, fmt_b)
    np.testing.assert_array_equal(
        reference_bits(*arguments, c=c, model=model), oracle_bits(*arguments, c=c, model=model)
    )


def test_largest_sums_of_the_widest_model():
    a, b = stacked(("largest_sums", "growing"), E5M2, E5M2, 2, 1, 1030)
    arguments = (a, b, E5M2, E5M2)
    np.testing.assert_array_equal(
        reference_bits(*arguments, model=WIDEST), oracle_bits(*arguments, model=WIDEST)
    )


def test_a_model_that_float64_cannot_hold_is_refused_by_its_numbers():
    block_fma.check_exact(WIDEST)
    for nfma, frac in ((1, 50), (3, 49)):  # 14 * 2^49 <= 2^53 < 18 * 2^49
        block_fma.check_exact(SimpleNamespace(nfma=nfma, frac=frac))
    for nfma, frac in ((2, 50), (4, 49)):
        with pytest.raises(BackendUnavailableError, match=f"nfma={nfma} and frac={frac}"):
            block_fma.check_exact(SimpleNamespace(nfma=nfma, frac=frac))
    with pytest.raises(BackendUnavailableError, match=r"nfma=4096 and frac=40.*integer kernels"):
        block_fma.check_exact(SimpleNamespace(nfma=4096, frac=40))


TINY = 2.0**-9  # the smallest E4M3 subnormal, of exponent -6

#: name: (model, products, c, expected value). Factors are E4M3.
FACTS = {
    "truncation is toward zero, not floor": (ADA, [(1, 1), (-(2.0**-6), TINY)], 0.0, 1.0),
    "truncation is not rounding": (ADA, [(1, 1), (1.875 * 2.0**-6, 2.0**-8)], 0.0, 1.0),
    "each term is truncated before the sum": (
        ADA, [(1, 1), *[(2.0**-6, TINY)] * 8], 0.0, 1.0,
    ),
    "a product is not renormalised": (
        ADA, [(1.5, 1.5), (-1.5, 1.5), (2.0**-6, 2.0**-7)], 0.0, 2.0**-13,
    ),
    "a subnormal keeps emin": (ADA, [(TINY, 1)], 2.0**-20, TINY),
    "a zero product lends no exponent": (ADA, [(0, 448), (TINY, TINY)], 2.0**-28, 2.0**-18),
    "the accumulator sets the exponent": (ADA, [(1, 1)], 2.0**14, 2.0**14),
    "a late accumulator does not": (B200_MMA_SYNC, [(1, 1)], 2.0**14, 2.0**14 + 1),
    "a late tie goes to even, down": (B200_MMA_SYNC, [(1, 1)], 2.0**24, 2.0**24),
    "a late tie goes to even, up": (B200_MMA_SYNC, [(1, 1)], 2.0**24 + 2, 2.0**24 + 4),
    "late far below, with the sign": (
        B200_MMA_SYNC, [(-TINY, TINY)], 2.0**100, 2.0**100,
    ),
    "the result is truncated": (HOPPER, [(1.5, 1.5), (2.0**-6, 2.0**-7)], 0.0, 2.25),
    "the result is truncated toward zero": (
        HOPPER, [(-1.5, 1.5), (-(2.0**-6), 2.0**-7)], 0.0, -2.25,
    ),
    "exact cancellation is +0": (HOPPER, [(1, 1), (-1, 1)], 0.0, 0.0),
    "a sum that truncates to zero is +0": (ADA, [], -(2.0**-140), 0.0),
    "a zero accumulator is +0": (ADA, [], -0.0, 0.0),
    "a late zero accumulator too": (B200_MMA_SYNC, [], -0.0, 0.0),
    "a subnormal accumulator on the grid stays": (ADA, [], 3 * 2.0**-139, 3 * 2.0**-139),
    "the grid's own unit stays": (ADA, [], 2.0**-139, 2.0**-139),
    "with its sign": (ADA, [], -(2.0**-139), -(2.0**-139)),
    "below 2^-126 the grid stands still": (ADA, [], 2.0**-130 + 2.0**-141, 2.0**-130),
    "a late subnormal accumulator stays": (B200_MMA_SYNC, [], -(2.0**-149), -(2.0**-149)),
}  # fmt: skip


@pytest.mark.parametrize("fact", FACTS)
def test_fact(fact):
    preset, products, c, expected = FACTS[fact]
    padded = [*products, *[(0, 0)] * (preset.nfma - len(products))]
    a, b = (codes(E4M3, [row])[None] for row in zip(*padded, strict=True))
    c = np.array([[[bits(c)]]], np.uint32)
    got = reference_bits(a, b, E4M3, E4M3, c=c, model=preset.model)
    assert got.item() == bits(expected)
    assert oracle_bits(a, b, E4M3, E4M3, c=c, model=preset.model).item() == bits(expected)


def test_the_order_inside_a_block_does_not_matter():
    a, b = stacked(families(), E4M3, E5M2, 2, 5, 64, seed=5)
    order = np.random.default_rng(0).permutation(32)
    order = np.concatenate([order, 32 + order[::-1]])
    straight = reference_bits(a, b, E4M3, E5M2, model=HOPPER.model)
    shuffled = reference_bits(a[..., order], b[..., order], E4M3, E5M2, model=HOPPER.model)
    np.testing.assert_array_equal(straight, shuffled)


def test_the_length_of_a_block_does():
    a, b = stacked(("growing", "cancelling_halves"), E4M3, E4M3, 4, 4, 64)
    ada = reference_bits(a, b, E4M3, E4M3, model=ADA.model)
    hopper = reference_bits(a, b, E4M3, E4M3, model=HOPPER.model)
    assert (ada != hopper).any()
