"""The operand families of :mod:`mmaemu_jax.testing.cases`: one function each.

A docstring says what its family breaks. Every function takes a random generator, both formats and
the shape ``m, n, k``, and returns integer codes ``[M, K]`` and ``[N, K]``.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from mmaemu_jax.formats import Fp8Format

Operands = tuple[np.ndarray, np.ndarray]
Family = Callable[[np.random.Generator, Fp8Format, Fp8Format, int, int, int], Operands]

_SIGN = 0x80

# Codes from their fields.


def _code(fmt: Fp8Format, exponent: ArrayLike, fraction: ArrayLike, negative: ArrayLike = 0):
    """Codes of ``+-2^exponent (1 + fraction / 2^mantissa_bits)``, clipped to the normal range."""
    biased = np.clip(np.asarray(exponent) - fmt.emin, 0, fmt.emax - fmt.emin) + 1
    magnitude = np.minimum((biased << fmt.mantissa_bits) | np.asarray(fraction), fmt.largest_code)
    return magnitude | (np.asarray(negative, np.int64) * _SIGN)


def _fractions(rng: np.random.Generator, fmt: Fp8Format, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(0, 1 << fmt.mantissa_bits, shape)


def _signs(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(0, 2, shape) * _SIGN


def _with_exponents(rng: np.random.Generator, fmt: Fp8Format, exponents: np.ndarray) -> np.ndarray:
    """Codes of these exponents with random fractions and signs."""
    shape = exponents.shape
    return _code(fmt, exponents, _fractions(rng, fmt, shape)) | _signs(rng, shape)


# The families.


def uniform(rng, fmt_a, fmt_b, m, n, k) -> Operands:
    """Every code equally likely (NaN and Inf too unless finite): the baseline."""
    return rng.integers(0, 256, (m, k)), rng.integers(0, 256, (n, k))


def subnormal(rng, fmt_a, fmt_b, m, n, k) -> Operands:
    """Subnormal codes against subnormal ones (even columns) and against any (odd columns): breaks
    a subnormal's exponent below emin (R2) and flushing."""
    a = _fractions(rng, fmt_a, (m, k)) | _signs(rng, (m, k))
    b = _with_exponents(rng, fmt_b, rng.integers(fmt_b.emin, fmt_b.emax + 1, (n, k)))
    b[::2] = _fractions(rng, fmt_b, b[::2].shape) | _signs(rng, b[::2].shape)
    return a, b


def sparse_signed_zeros(rng, fmt_a, fmt_b, m, n, k) -> Operands:
    """Few small products among zeros of both signs, and large values that meet zeros only: breaks
    zeros that lend an exponent (R3) or a sign (R7)."""

    def sparse(fmt, shape, large):
        small = _with_exponents(rng, fmt, rng.integers(fmt.emin, fmt.emin + 4, shape))
        codes = np.where(rng.random(shape) < 0.4, small, small & _SIGN)
        codes[:, 1::2] &= _SIGN
        codes[:, large::4] |= fmt.largest_code
        return codes

    return sparse(fmt_a, (m, k), 1), sparse(fmt_b, (n, k), 3)


def cancelling_halves(rng, fmt_a, fmt_b, m, n, k) -> Operands:
    """The second half of K undoes the first except for small terms: breaks sums that are not
    exact (R6) and an accumulator that keeps its exponent when it cancels (R4)."""
    a, b = randn(rng, fmt_a, fmt_b, m, n, k)
    first, second = slice(0, k // 2), slice(k // 2, k // 2 * 2)
    a[:, second], b[:, second] = a[:, first] ^ _SIGN, b[:, first]
    a[:, ::7] = _code(fmt_a, fmt_a.emin, _fractions(rng, fmt_a, a[:, ::7].shape))
    return a, b


def cancel_in_block(rng, fmt_a, fmt_b, m, n, k) -> Operands:
    """Neighbouring products cancel, small ones remain: the largest exponent of a block is not
    that of its sum, so aligning to the result instead of by R4 keeps too much."""
    a = _with_exponents(rng, fmt_a, rng.integers(fmt_a.emin, fmt_a.emax + 1, (m, k)))
    b = _with_exponents(rng, fmt_b, rng.integers(fmt_b.emin, fmt_b.emax + 1, (n, k)))
    left, right = slice(0, k // 2 * 2, 2), slice(1, k // 2 * 2, 2)
    a[:, right], b[:, right] = a[:, left] ^ _SIGN, b[:, left]
    a[:, 3::8] = _with_exponents(rng, fmt_a, rng.integers(-3, 3, a[:, 3::8].shape))
    return a, b


def dominant_exponent(rng, fmt_a, fmt_b, m, n, k) -> Operands:
    """One large product per 16 positions over small ones 2^6 to 2^16 below: breaks the width of
    the alignment and its truncation (R5)."""
    position = rng.integers(0, 16)

    def mixed(fmt, shape):
        exponents = fmt.emax - rng.integers(3, 9, shape)
        exponents[:, position::16] = fmt.emax
        return _with_exponents(rng, fmt, exponents)

    return mixed(fmt_a, (m, k)), mixed(fmt_b, (n, k))


def growing(rng, fmt_a, fmt_b, m, n, k) -> Operands:
    """Exponents grow along K, so every block truncates the accumulator anew (R5): breaks another
    order of K, of chunks or of splits (R9 to R13)."""

    def ramp(fmt, shape):
        exponents = np.linspace(fmt.emin, fmt.emax, k).astype(np.int64)
        return _with_exponents(rng, fmt, np.broadcast_to(exponents, shape))

    return ramp(fmt_a, (m, k)), ramp(fmt_b, (n, k))


def walking_ones(rng, fmt_a, fmt_b, m, n, k) -> Operands:
    """No, one or all fraction bits, at exponents emin, emin + 1, 0 and the largest: breaks
    shifts, masks and tables at their ends (R1 to R3)."""

    def extreme(fmt, shape):
        fractions = [0, (1 << fmt.mantissa_bits) - 1, *(1 << i for i in range(fmt.mantissa_bits))]
        exponents = rng.choice([fmt.emin, fmt.emin + 1, 0, fmt.emax], shape)
        return _code(fmt, exponents, rng.choice(fractions, shape)) | _signs(rng, shape)

    return extreme(fmt_a, (m, k)), extreme(fmt_b, (n, k))


def randn(rng, fmt_a, fmt_b, m, n, k) -> Operands:
    """Normally distributed values: what a network multiplies."""

    def draw(fmt, shape):
        values = rng.standard_normal(shape, np.float32)
        return values.astype(fmt.dtype).view(np.uint8).astype(np.int64)

    return draw(fmt_a, (m, k)), draw(fmt_b, (n, k))


def accumulator_dominates(rng, fmt_a, fmt_b, m, n, k) -> Operands:
    """Large products first, then small ones, then the large ones taken back: the accumulator
    sets the exponent of R4 until it has shrunk, and early and late c differ (R8)."""
    a = _with_exponents(rng, fmt_a, rng.integers(-4, 1, (m, k)))
    b = _with_exponents(rng, fmt_b, rng.integers(-4, 1, (n, k)))
    width = max(1, k // 32)
    for first, sign in ((0, 0), (k * 2 // 3, _SIGN)):
        a[:, first : first + width] = fmt_a.largest_code | sign
        b[:, first : first + width] = fmt_b.largest_code
    return a, b


def special_values(rng, fmt_a, fmt_b, m, n, k) -> Operands:
    """Few NaN and Inf among signed zeros and values, and rows without any: breaks Inf * 0,
    Inf - Inf, and a NaN that leaves its row or column (R14). Means little with finite=True."""

    def special(fmt, shape):
        codes = _with_exponents(rng, fmt, rng.integers(-3, 4, shape))
        codes = np.where(rng.random(shape) < 0.2, codes & _SIGN, codes)
        infinities = np.flatnonzero(np.isinf(fmt.values))
        chosen = np.concatenate([np.flatnonzero(np.isnan(fmt.values)), np.repeat(infinities, 8)])
        rate = rng.choice([0.0, 0.5, 2.0], (shape[0], 1)) / max(k, 1)
        return np.where(rng.random(shape) < rate, rng.choice(chosen, shape), codes)

    return special(fmt_a, (m, k)), special(fmt_b, (n, k))


def largest_sums(rng, fmt_a, fmt_b, m, n, k) -> Operands:
    """Every factor the largest finite value, one sign per row: breaks the width of a block sum
    (R6) and of the accumulator."""

    def full(fmt, rows):
        return np.broadcast_to(fmt.largest_code | _signs(rng, (rows, 1)), (rows, k))

    return full(fmt_a, m), full(fmt_b, n)


def inexact_negatives(rng, fmt_a, fmt_b, m, n, k) -> Operands:
    """Products of both signs around the grid that one large product sets: truncation toward zero
    (R5) is neither floor nor rounding."""

    def fine(fmt, shape):
        exponents = rng.integers(-8, -4, shape)
        exponents[:, ::16] = 2
        return _code(fmt, exponents, _fractions(rng, fmt, shape) | 1)

    return fine(fmt_a, (m, k)) | (np.arange(k) % 2 * _SIGN), fine(fmt_b, (n, k))


def zeros(rng, fmt_a, fmt_b, m, n, k) -> Operands:
    """Zeros of both signs only: the result is +0, never -0 (R7, R17)."""
    return _signs(rng, (m, k)), _signs(rng, (n, k))


FAMILIES: dict[str, Family] = {
    function.__name__: function
    for function in (
        uniform,
        subnormal,
        sparse_signed_zeros,
        cancelling_halves,
        cancel_in_block,
        dominant_exponent,
        growing,
        walking_ones,
        randn,
        accumulator_dominates,
        special_values,
        largest_sums,
        inexact_negatives,
        zeros,
    )
}
