"""Adversarial FP8 operands and scales, for anyone who tests an FP8 GEMM.

Uniformly random codes find few errors, because one large product usually decides a block. The
families of :mod:`mmaemu_jax.testing.families` put the arithmetic where rules R2 to R14 can be told
apart from their near misses. Everything is numpy and a function of its arguments alone.
"""

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np

from mmaemu_jax.errors import unknown_name
from mmaemu_jax.formats import FORMATS, Fp8Format, format_named
from mmaemu_jax.testing.families import FAMILIES

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
    return tuple(FAMILIES)


def operands(
    family: str,
    fmt_a: Fp8Format | str,
    fmt_b: Fp8Format | str,
    m: int,
    n: int,
    k: int,
    seed: int,
    finite: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Operands of one family.

    Args:
        family: one of :func:`families`.
        fmt_a, fmt_b: a format or its name ("e4m3", "e5m2").
        m, n, k: the shape.
        seed: a non-negative integer; equal arguments give equal operands.
        finite: replace NaN and Inf codes by +0.

    Returns:
        uint8 codes ``[M, K]`` of fmt_a and ``[N, K]`` of fmt_b.

    Raises:
        ValueError: an unknown family or format.
    """
    if family not in FAMILIES:
        raise unknown_name("operand family", family, FAMILIES)
    formats = _format(fmt_a), _format(fmt_b)
    rng = np.random.Generator(np.random.Philox(seed))
    a, b = FAMILIES[family](rng, *formats, m, n, k)
    return _finish(a, formats[0], finite), _finish(b, formats[1], finite)


def cases(
    *,
    family_names: Iterable[str] | None = None,
    format_pairs: Iterable[tuple[Fp8Format, Fp8Format]] | None = None,
    shapes: Iterable[tuple[int, int, int]] = SHAPES,
    seed: int = 0,
    finite: bool = True,
) -> Iterator[Case]:
    """Named cases, every family x format pair x shape: by default all families and all pairs."""
    names = families() if family_names is None else tuple(family_names)
    if format_pairs is None:
        format_pairs = [(x, y) for x in FORMATS for y in FORMATS]
    pairs, shapes = tuple(format_pairs), tuple(shapes)
    for name in names:
        for fmt_a, fmt_b in pairs:
            for m, n, k in shapes:
                a, b = operands(name, fmt_a, fmt_b, m, n, k, seed, finite)
                label = f"{name}-{fmt_a.name}x{fmt_b.name}-{m}x{n}x{k}"
                yield Case(label, fmt_a, fmt_b, a, b)


def hard_scales() -> list[int]:
    """float32 bit patterns of scales that break an epilogue (R16 to R18)."""
    zeros = [0x00000000, 0x80000000]
    #: Lost under flush-to-zero.
    subnormal = [0x00000001, 0x80000001, 0x00400000, 0x007FFFFF]
    limits = [0x00800000, 0x80800000, 0x7F7FFFFF, 0xFF7FFFFF]
    #: With a payload, and signalling, to be made canonical (R19).
    not_finite = [0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00123, 0x7F800001]
    #: 2^-75, 2^-64, 2^-63: products among them are subnormal; 2^64 and 2^65 overflow.
    powers = [0x1A000000, 0x1F800000, 0x20000000, 0x5F800000, 0x60000000]
    #: 1 + 2^-23, 1 - 2^-24, 2 - 2^-23, 1.5 + 2^-23: acc * alpha is a tie or next to one (R17).
    ties = [0x3F800001, 0x3F7FFFFF, 0x3FFFFFFF, 0x3FC00001]
    #: 1, -1, 2^-24, 1e-4, 0.1, 0.3, 1.7, 448.
    everyday = [0x3F800000, 0xBF800000, 0x33800000, 0x38D1B717]
    everyday += [0x3DCCCCCD, 0x3E99999A, 0x3FD9999A, 0x43E00000]
    return [*everyday, *zeros, *subnormal, *limits, *not_finite, *powers, *ties]


def _format(name: Fp8Format | str) -> Fp8Format:
    found = format_named(name)
    if found is None:
        raise unknown_name("FP8 format", str(name), (f.name for f in FORMATS))
    return found


def _finish(codes: np.ndarray, fmt: Fp8Format, finite: bool) -> np.ndarray:
    codes = codes.astype(np.uint8)
    return np.where(np.isfinite(fmt.values)[codes], codes, np.uint8(0)) if finite else codes
