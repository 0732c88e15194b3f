"""Adversarial FP8 operands: each family breaks one way of getting a tensor-core GEMM wrong.

Uniformly random codes find few errors, because one large product usually decides a block. These
families put the arithmetic where rules R2 to R14 can be told apart from their near misses.
Everything is numpy and a function of its arguments alone.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from mmaemu_jax.errors import unknown_name
from mmaemu_jax.formats import FORMATS, Fp8Format, format_named

Operands = tuple[np.ndarray, np.ndarray]
_Family = Callable[[np.random.Generator, Fp8Format, Fp8Format, int, int, int], Operands]

_FAMILIES: dict[str, _Family] = {}

#: Shapes (M, N, K) of :func:`cases`: one product, whole blocks, ragged blocks, tiles and chunks.
SHAPES = ((1, 1, 1), (3, 5, 16), (2, 3, 33), (4, 4, 130), (2, 3, 321))


@dataclasses.dataclass(frozen=True)
class Case:
    """Named operands: ``a`` uint8 ``[M, K]`` codes of ``fmt_a``, ``b`` uint8 ``[N, K]``."""

    name: str
    fmt_a: Fp8Format
    fmt_b: Fp8Format
    a: np.ndarray
    b: np.ndarray


def families() -> tuple[str, ...]:
    """Names of the operand families."""
    return tuple(_FAMILIES)


def operands(
    family: str, fmt_a, fmt_b, m: int, n: int, k: int, seed: int, finite: bool = True
) -> Operands:
    """Operands of one family.

    Args:
        family: one of :func:`families`.
        fmt_a, fmt_b: an Fp8Format, its name or its dtype.
        m, n, k: the shape.
        seed: a non-negative integer; equal arguments give equal operands.
        finite: replace NaN and Inf codes by +0.

    Returns:
        uint8 codes ``[M, K]`` of fmt_a and ``[N, K]`` of fmt_b.

    Raises:
        ValueError: an unknown family or format.
    """
    if family not in _FAMILIES:
        raise unknown_name("operand family", family, _FAMILIES)
    formats = [_format(fmt_a), _format(fmt_b)]
    rng = np.random.Generator(np.random.Philox(seed))
    codes = _FAMILIES[family](rng, *formats, m, n, k)
    if finite:
        codes = [np.where(np.isfinite(f.values)[x], x, 0) for f, x in zip(formats, codes)]
    a, b = (np.ascontiguousarray(x, np.uint8) for x in codes)
    return a, b


def cases(
    *,
    family_names: Iterable[str] | None = None,
    format_pairs: Iterable[tuple[Fp8Format, Fp8Format]] | None = None,
    shapes: Iterable[tuple[int, int, int]] = SHAPES,
    seed: int = 0,
    finite: bool = True,
) -> Iterator[Case]:
    """Named cases: every family x format pair x shape (default: all families, all four pairs)."""
    names = families() if family_names is None else tuple(family_names)
    pairs = ((x, y) for x in FORMATS for y in FORMATS) if format_pairs is None else format_pairs
    pairs, shapes = tuple(pairs), tuple(shapes)
    for name in names:
        for fmt_a, fmt_b in pairs:
            for m, n, k in shapes:
                a, b = operands(name, fmt_a, fmt_b, m, n, k, seed, finite)
                yield Case(f"{name}-{fmt_a.name}x{fmt_b.name}-{m}x{n}x{k}", fmt_a, fmt_b, a, b)


def hard_scales() -> list[int]:
    """float32 bit patterns of scales that break an epilogue (R16 to R18).

    Signed zeros and subnormals (lost under flush-to-zero), Inf and NaN with and without payload,
    the largest finite value, negative scales, powers of two whose product is subnormal or
    overflows, and significands that make the one rounding of R17 a tie or nearly one.
    """
    return [
        0x3F800000, 0xBF800000,  # 1, -1
        0x00000000, 0x80000000,  # +0, -0
        0x00000001, 0x80000001, 0x007FFFFF, 0x00400000,  # subnormal
        0x00800000, 0x80800000,  # smallest normal
        0x7F7FFFFF, 0xFF7FFFFF,  # largest
        0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00123, 0x7F800001,  # Inf, NaN, signalling NaN
        0x1F800000, 0x20000000, 0x1A000000,  # 2^-64, 2^-63, 2^-75: subnormal products
        0x5F800000, 0x60000000,  # 2^64, 2^65: products that overflow
        0x3F800001, 0x3F7FFFFF, 0x3FFFFFFF, 0x3FC00001,  # ties and near ties of acc * alpha
        0x33800000, 0x38D1B717, 0x3DCCCCCD, 0x3E99999A, 0x3FD9999A, 0x43E00000,  # everyday scales
    ]


def _format(fmt) -> Fp8Format:
    found = format_named(fmt)
    if found is None:
        raise unknown_name("FP8 format", str(fmt), (f.name for f in FORMATS))
    return found


def _family(function: _Family) -> _Family:
    """Registers a family under its function's name."""
    _FAMILIES[function.__name__.strip("_")] = function
    return function


# Codes from their fields.


def _largest(fmt: Fp8Format) -> int:
    """Magnitude code of the largest finite value."""
    return int(np.flatnonzero(fmt.values[:128] == fmt.max_finite)[0])


def _emax(fmt: Fp8Format) -> int:
    return (_largest(fmt) >> fmt.mantissa_bits) - fmt.bias


def _code(fmt: Fp8Format, exponent, fraction, negative=False) -> np.ndarray:
    """Codes of ``+-2^exponent (1 + fraction / 2^mantissa_bits)``, clipped to the normal range."""
    biased = np.clip(np.asarray(exponent) - fmt.emin, 0, _emax(fmt) - fmt.emin) + 1
    magnitude = np.minimum((biased << fmt.mantissa_bits) | fraction, _largest(fmt))
    return (magnitude | (np.asarray(negative, np.int64) << 7)).astype(np.uint8)


def _fractions(rng, fmt: Fp8Format, shape) -> np.ndarray:
    return rng.integers(0, 1 << fmt.mantissa_bits, shape)


def _signs(rng, shape) -> np.ndarray:
    return rng.integers(0, 2, shape)


def _encode(fmt: Fp8Format, values: np.ndarray) -> np.ndarray:
    """Nearest codes of real values, saturated."""
    clipped = np.clip(values, -fmt.max_finite, fmt.max_finite)
    return clipped.astype(np.float32).astype(fmt.dtype).view(np.uint8)


# The families.


@_family
def _uniform(rng, fmt_a, fmt_b, m, n, k):
    """Every code equally likely (NaN and Inf too unless finite): the baseline."""
    return rng.integers(0, 256, (m, k)), rng.integers(0, 256, (n, k))


@_family
def _subnormal(rng, fmt_a, fmt_b, m, n, k):
    """Subnormal codes of both signs: breaks a renormalised exponent (R2, R3) and flushing."""
    return tuple(
        rng.integers(0, 1 << f.mantissa_bits, (rows, k)) | _signs(rng, (rows, k)) << 7
        for f, rows in ((fmt_a, m), (fmt_b, n))
    )


@_family
def _sparse_signed_zeros(rng, fmt_a, fmt_b, m, n, k):
    """Mostly zeros of both signs: breaks zeros that lend an exponent (R3) or a sign (R7)."""
    def sparse(fmt, rows):
        codes = _code(fmt, rng.integers(fmt.emin, _emax(fmt) + 1, (rows, k)),
                      _fractions(rng, fmt, (rows, k)), _signs(rng, (rows, k)))
        return np.where(rng.random((rows, k)) < 0.15, codes, codes & 0x80)
    return sparse(fmt_a, m), sparse(fmt_b, n)


@_family
def _cancelling_pairs(rng, fmt_a, fmt_b, m, n, k):
    """The second half of K undoes the first but for small terms: breaks sums that are not exact
    (R6), and an accumulator exponent kept after cancellation (R4)."""
    a, b = _randn(rng, fmt_a, fmt_b, m, n, k)
    half = k // 2
    a[:, half : 2 * half], b[:, half : 2 * half] = a[:, :half] ^ 0x80, b[:, :half]
    a[:, ::7] = _code(fmt_a, fmt_a.emin, _fractions(rng, fmt_a, a[:, ::7].shape))
    return a, b


@_family
def _cancel_in_block(rng, fmt_a, fmt_b, m, n, k):
    """Neighbouring products cancel, small ones remain: the largest exponent of a block is not
    that of its sum, so aligning to the result instead of to R4 keeps too much."""
    a, b = _uniform(rng, fmt_a, fmt_b, m, n, k)
    even = k // 2 * 2
    a[:, 1:even:2], b[:, 1:even:2] = a[:, 0:even:2] ^ 0x80, b[:, 0:even:2]
    a[:, 3::8] = _code(fmt_a, rng.integers(-2, 3, a[:, 3::8].shape), 1)
    return a, b


@_family
def _dominant_exponent(rng, fmt_a, fmt_b, m, n, k):
    """One large product per 16 positions over small ones at every distance: breaks the width of
    the alignment (frac of R5) and its truncation."""
    def mixed(fmt, rows):
        exponents = rng.integers(fmt.emin, 1, (rows, k))
        exponents[:, rng.integers(0, 16) :: 16] = _emax(fmt)
        return _code(fmt, exponents, _fractions(rng, fmt, (rows, k)), _signs(rng, (rows, k)))
    return mixed(fmt_a, m), mixed(fmt_b, n)


@_family
def _growing(rng, fmt_a, fmt_b, m, n, k):
    """Exponents grow along K: every block truncates the accumulator anew (R5 for c), so another
    order of K, chunk or split shows."""
    def ramp(fmt, rows):
        exponents = np.broadcast_to(np.linspace(fmt.emin, _emax(fmt), max(k, 1))[:k], (rows, k))
        return _code(fmt, exponents.astype(np.int64), _fractions(rng, fmt, (rows, k)),
                     _signs(rng, (rows, k)))
    return ramp(fmt_a, m), ramp(fmt_b, n)


@_family
def _walking_ones(rng, fmt_a, fmt_b, m, n, k):
    """One fraction bit or all of them, at exponents emin, emin + 1, 0 and the largest: breaks
    shifts, masks and tables at their ends (R1 to R3)."""
    def extreme(fmt, rows):
        bits = [0, (1 << fmt.mantissa_bits) - 1, *(1 << i for i in range(fmt.mantissa_bits))]
        exponents = rng.choice([fmt.emin, fmt.emin + 1, 0, _emax(fmt)], (rows, k))
        return _code(fmt, exponents, rng.choice(bits, (rows, k)), _signs(rng, (rows, k)))
    return extreme(fmt_a, m), extreme(fmt_b, n)


@_family
def _randn(rng, fmt_a, fmt_b, m, n, k):
    """Normally distributed values: what a network multiplies."""
    return (_encode(fmt_a, rng.standard_normal((m, k))),
            _encode(fmt_b, rng.standard_normal((n, k))))


@_family
def _accumulator_dominates(rng, fmt_a, fmt_b, m, n, k):
    """Large first products, small later ones, then the large ones taken back: the accumulator
    sets the exponent of R4 until it has shrunk; late and early c differ (R8)."""
    a = _code(fmt_a, rng.integers(-4, 1, (m, k)), _fractions(rng, fmt_a, (m, k)),
              _signs(rng, (m, k)))
    b = _code(fmt_b, rng.integers(-4, 1, (n, k)), _fractions(rng, fmt_b, (n, k)))
    head, back = slice(0, max(1, k // 32)), slice(k // 2, k // 2 + max(1, k // 32))
    a[:, head], b[:, head] = _largest(fmt_a), _largest(fmt_b)
    a[:, back], b[:, back] = _largest(fmt_a) | 0x80, _largest(fmt_b)
    return a, b


@_family
def _special_values(rng, fmt_a, fmt_b, m, n, k):
    """Few NaN and Inf codes among signed zeros and values, some rows without: Inf * 0,
    Inf - Inf, and a NaN that must not leave its row or column (R14). Useful with finite=False."""
    def special(fmt, rows):
        codes = _code(fmt, rng.integers(-3, 4, (rows, k)), _fractions(rng, fmt, (rows, k)),
                      _signs(rng, (rows, k)))
        codes[rng.random((rows, k)) < 0.2] &= 0x80
        values = np.flatnonzero(~np.isfinite(fmt.values))
        if fmt.has_infinity:  # as many infinities as NaNs
            values = np.concatenate([values, np.repeat(np.flatnonzero(np.isinf(fmt.values)), 3)])
        rate = rng.choice([0.0, 1.0, 2.0], (rows, 1)) / max(k, 1)
        return np.where(rng.random((rows, k)) < rate, rng.choice(values, (rows, k)), codes)
    return special(fmt_a, m), special(fmt_b, n)


@_family
def _largest_sums(rng, fmt_a, fmt_b, m, n, k):
    """Every factor the largest finite value, rows of one sign each: breaks accumulator widths
    and K limits (R6)."""
    def full(fmt, rows):
        return np.broadcast_to(_largest(fmt) | (_signs(rng, (rows, 1)) << 7), (rows, k))
    return full(fmt_a, m), full(fmt_b, n)


@_family
def _inexact_negatives(rng, fmt_a, fmt_b, m, n, k):
    """Alternating signs just below the grid that one large product sets: truncation toward zero
    (R5) is neither floor nor rounding."""
    def fine(fmt, rows, sign):
        exponents = np.full((rows, k), -7) + rng.integers(-1, 2, (rows, k))
        exponents[:, ::16] = 2
        return _code(fmt, exponents, _fractions(rng, fmt, (rows, k)) | 1, sign)
    return fine(fmt_a, m, np.arange(k) % 2), fine(fmt_b, n, False)


@_family
def _zeros(rng, fmt_a, fmt_b, m, n, k):
    """Zeros of both signs only: the result is +0, never -0 (R7, R17)."""
    return _signs(rng, (m, k)) << 7, _signs(rng, (n, k)) << 7
