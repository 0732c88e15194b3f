"""The operand families: what they promise, and the near misses of the rules that they expose."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import oracle_fractions as oracle
import pytest

from mmaemu_jax.accumulate import ONE_CHAIN
from mmaemu_jax.formats import E4M3, E5M2, FORMATS
from mmaemu_jax.instruction import HOPPER
from mmaemu_jax.testing.cases import SHAPES, cases, families, hard_scales, operands

ONE = 0x3F800000


@pytest.mark.parametrize("family", families())
def test_operands_are_codes_of_their_shape_and_repeat(family):
    for fmt_a, fmt_b in ((E4M3, E5M2), (E5M2, E4M3)):
        for m, n, k in (*SHAPES, (0, 2, 4), (2, 1, 0)):
            a, b = operands(family, fmt_a, fmt_b, m, n, k, seed=7)
            assert (a.shape, b.shape, a.dtype, b.dtype) == ((m, k), (n, k), np.uint8, np.uint8)
            assert np.isfinite(fmt_a.values)[a].all()
            assert np.isfinite(fmt_b.values)[b].all()
            again = operands(family, fmt_a.name, fmt_b.name, m, n, k, seed=7)
            np.testing.assert_array_equal(a, again[0])
            np.testing.assert_array_equal(b, again[1])


def test_specials_appear_on_request():
    a, b = operands("special_values", E5M2, E4M3, 32, 32, 64, seed=0, finite=False)
    a, b = E5M2.values[a], E4M3.values[b]
    assert np.isnan(a).any()
    assert np.isinf(a).any()
    assert np.isnan(b).any()
    assert np.isfinite(a).all(axis=1).any()


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="operand family 'nope'; known: uniform, "):
        operands("nope", E4M3, E4M3, 1, 1, 1, seed=0)
    with pytest.raises(ValueError, match="FP8 format 'e3m4'; known: e4m3, e5m2"):
        operands("uniform", "e3m4", E4M3, 1, 1, 1, seed=0)


def test_cases_cover_families_pairs_and_shapes_under_distinct_names():
    names = [case.name for case in cases()]
    assert len(set(names)) == len(names) == len(families()) * len(FORMATS) ** 2 * len(SHAPES)
    chosen = cases(family_names=["growing"], format_pairs=[(E4M3, E5M2)], shapes=[(1, 2, 3)])
    (case,) = chosen
    assert (case.name, case.a.shape, case.b.shape) == ("growing-e4m3xe5m2-1x2x3", (1, 3), (2, 3))


def test_hard_scales_are_distinct_float32_patterns():
    scales = hard_scales()
    assert len(set(scales)) == len(scales)
    assert all(0 <= bits < 2**32 for bits in scales)


def floored(x, grid_exponent):
    grid = Fraction(2) ** grid_exponent
    return math.floor(x / grid) * grid


def rounded(x, grid_exponent):
    grid = Fraction(2) ** grid_exponent
    return round(x / grid) * grid


def leading_bit(value, fmt):
    return oracle.floor_log2(value)


def with_model(**changes):
    def block_step(a, b, fmt_a, fmt_b, c, model, original=oracle.block_step):
        return original(a, b, fmt_a, fmt_b, c, dataclasses.replace(model, **changes))

    return block_step


def zeros_lend_exponents(a, b, fmt_a, fmt_b, c, model, original=oracle.block_step):
    def exponent(x, fmt):
        return oracle.code_exponent(x, fmt) if x else fmt.emin

    top = max(exponent(x, fmt_a) + exponent(y, fmt_b) for x, y in zip(a, b, strict=True))
    floor = max(model.min_exp, top)
    return original(a, b, fmt_a, fmt_b, c, dataclasses.replace(model, min_exp=floor))


def shorter_blocks(a, b, fmt_a, fmt_b, c, model, original=oracle.chain):
    return original(a, b, fmt_a, fmt_b, c, dataclasses.replace(model, nfma=16))


#: A wrong reading of a rule: (what replaces it in the oracle, a family that must notice).
NEAR_MISSES = {
    "floor": ({"truncate": floored}, "inexact_negatives"),
    "rounding": ({"truncate": rounded}, "dominant_exponent"),
    "no emin": ({"code_exponent": leading_bit}, "subnormal"),
    "zeros count": ({"block_step": zeros_lend_exponents}, "sparse_signed_zeros"),
    "frac + 1": ({"block_step": with_model(frac=14)}, "dominant_exponent"),
    "frac - 1": ({"block_step": with_model(frac=12)}, "walking_ones"),
    "frac_out + 1": ({"block_step": with_model(frac_out=14)}, "growing"),
    "late c": ({"block_step": with_model(late_c=True)}, "accumulator_dominates"),
    "blocks of 16": ({"chain": shorter_blocks}, "cancel_in_block"),
    "fine sums": ({"block_step": with_model(frac=40)}, "cancelling_halves"),
}  # fmt: skip


@pytest.mark.parametrize("near_miss", NEAR_MISSES)
def test_a_near_miss_is_noticed(monkeypatch, near_miss):
    replacements, family = NEAR_MISSES[near_miss]
    right = bits_of(family)
    for name, replacement in replacements.items():
        monkeypatch.setattr(oracle, name, replacement)
    assert bits_of(family) != right


def bits_of(family):
    a, b = operands(family, E4M3, E4M3, 4, 4, 96, seed=0)
    out = oracle.gemm_bits(
        a, b, E4M3, E4M3, ONE, ONE, None, None, HOPPER.model, ONE_CHAIN, np.float32
    )
    return out.tolist()
