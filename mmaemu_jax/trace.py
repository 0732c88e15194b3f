"""trace_dot: what happens inside every block of a chain, in exact arithmetic (R2 to R9)."""

import dataclasses
from fractions import Fraction
from typing import Any

import numpy as np

from mmaemu_jax.errors import message
from mmaemu_jax.formats import Fp8Format, format_of
from mmaemu_jax.instruction import InstructionModel, Preset, preset_argument
from mmaemu_jax.operands import dot_operands

_F32_EMIN = -126


@dataclasses.dataclass(frozen=True)
class TracedTerm:
    """One term of a block.

    Attributes:
        k: position in the dot product; None for the accumulator c.
        value: exactly.
        exponent: what it brings to R4.
        aligned: what is left of it after R5.
    """

    k: int | None
    value: Fraction
    exponent: int
    aligned: Fraction

    @property
    def lost(self) -> Fraction:
        """What the alignment drops."""
        return self.value - self.aligned


@dataclasses.dataclass(frozen=True)
class TracedBlock:
    """One block step.

    Attributes:
        start: position of its first product.
        exponent: E of R4.
        terms: the terms that take part, the accumulator first if it does.
        total: their sum (R6).
        result: after R7, and R8 where c is late: the new accumulator.
        c: the accumulator before.
    """

    start: int
    exponent: int
    terms: tuple[TracedTerm, ...]
    total: Fraction
    result: np.float32
    c: np.float32

    @property
    def exact(self) -> Fraction:
        """c plus the products, without any rounding."""
        products = sum((t.value for t in self.terms if t.k is not None), Fraction(0))
        return products + Fraction(float(self.c))

    @property
    def lost(self) -> Fraction:
        """What the whole step drops."""
        return self.exact - Fraction(float(self.result))


@dataclasses.dataclass(frozen=True)
class DotTrace:
    """A dot product, block by block.

    Blocks whose products are all zero are left out, but for those that cut the accumulator.

    Attributes:
        model: the instruction's numbers.
        blocks: in K order.
        result: of the chain, the bits of :func:`mmaemu_jax.dot`.
    """

    model: InstructionModel
    blocks: tuple[TracedBlock, ...]
    result: np.float32

    @property
    def lost(self) -> Fraction:
        """The exact dot product minus the result."""
        return sum((b.lost for b in self.blocks), Fraction(0))

    def __str__(self) -> str:
        lines = [f"{'k':>6} {'E':>5} {'terms':>6} {'cut':>4} {'lost':>12} {'accumulator':>16}"]
        for block in self.blocks:
            cut = sum(t.lost != 0 for t in block.terms)
            lines.append(
                f"{block.start:>6} {block.exponent:>5} {len(block.terms):>6} {cut:>4} "
                f"{float(block.lost):>12.5g} {float(block.result):>16.9g}"
            )
        return "\n".join([*lines, f"result {float(self.result)!r}, lost {float(self.lost):.5g}"])


def trace_dot(
    a: Any, b: Any, c: Any = None, *, preset: str | Preset = "ada", fmt: Any = None
) -> DotTrace:
    """How one chain sums a dot product: per block E, the aligned terms, what is lost, the result.

    Args:
        a, b: FP8 [K]; with ``fmt`` also floating-point arrays that hold FP8 values exactly.
        c: float32 scalar where the chain starts; None is +0.
        preset: a name or a :class:`Preset`; "ada" by default, whatever the default profile is.
        fmt: as in :func:`mmaemu_jax.dot`.

    Raises:
        TypeError, ValueError: as :func:`mmaemu_jax.dot`; also operands that are not vectors, and
            values that are not finite (R14 decides those without a chain).
    """
    model = preset_argument("trace_dot", preset).model
    operands = dot_operands("trace_dot", a, b, c, fmt, asarray=np.asarray)
    if operands.a.ndim != 1:
        raise ValueError(
            message(
                f"trace_dot: a and b must be vectors [K], got shape {operands.a.shape}.",
                ["trace one dot product at a time", "mmaemu_jax.dot computes many"],
            )
        )
    vectors = [np.asarray(x) for x in (operands.a, operands.b)]
    start = np.float32(0) if operands.c is None else np.float32(np.asarray(operands.c))
    if not (np.isfinite(start) and all(np.isfinite(v.astype(np.float32)).all() for v in vectors)):
        raise ValueError(
            message(
                "trace_dot: a, b and c must be finite; else the result is their IEEE value (R14).",
                ["mmaemu_jax.dot"],
            )
        )
    blocks, acc = [], start
    for first in range(0, len(vectors[0]), model.nfma):
        products = _products(vectors, first, min(first + model.nfma, len(vectors[0])))
        if products or acc != 0:
            block = _step(model, first, products, acc)
            acc = block.result
            if products or block.lost:
                blocks.append(block)
        else:
            acc = np.float32(0)
    return DotTrace(model, tuple(blocks), acc)


def _products(vectors, first: int, end: int) -> list[tuple[int, Fraction, int]]:
    """(k, value, exponent) of the products that are not zero (R3)."""
    formats = [format_of(v.dtype) for v in vectors]
    found = []
    for k in range(first, end):
        x, y = (float(v[k]) for v in vectors)
        if x != 0 and y != 0:
            e = sum(_exponent(v, fmt) for v, fmt in zip((x, y), formats, strict=True) if fmt)
            found.append((k, Fraction(x) * Fraction(y), e))
    return found


def _exponent(x: float, fmt: Fp8Format) -> int:
    """R2."""
    return max(int(np.frexp(abs(x))[1]) - 1, fmt.emin)


def _log2(x: Fraction) -> int:
    """floor(log2 |x|)."""
    e = abs(x.numerator).bit_length() - x.denominator.bit_length()
    return e if abs(x) >= Fraction(2) ** e else e - 1


def _truncate(x: Fraction, unit: Fraction) -> Fraction:
    return int(x / unit) * unit


def _step(model: InstructionModel, first: int, products, c: np.float32) -> TracedBlock:
    candidates: list[tuple[int | None, Fraction, int]] = list(products)
    value = Fraction(float(c))
    if c != 0 and not model.late_c:
        candidates.insert(0, (None, value, _log2(value)))
    top = max([model.min_exp, *(e for _, _, e in candidates)])  # R4
    unit = Fraction(2) ** (top - model.frac)
    terms = tuple(TracedTerm(k, v, e, _truncate(v, unit)) for k, v, e in candidates)  # R5
    total = sum((t.aligned for t in terms), Fraction(0))  # R6
    result = Fraction(0)
    if total:
        result = _truncate(total, Fraction(2) ** (max(_log2(total), _F32_EMIN) - model.frac_out))
    out = np.float32(float(result))  # exact: at most 24 bits
    if model.late_c:
        out = np.float32(float(out) + float(c))  # R8: the float64 sum rounds to float32 rightly
    return TracedBlock(first, top, terms, total, out, c)
