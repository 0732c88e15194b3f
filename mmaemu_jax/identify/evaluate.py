"""The accumulators of a member, in numpy: exact float64 steps, rounded by their bits.

Many dot products, and many settings of the bit counts, at once. Positions where both factors are
zero in every dot product are left out: they lend no exponent that any other term does not exceed.
"""

import dataclasses
import functools

import numpy as np

from mmaemu_jax.formats import Fp8Format
from mmaemu_jax.identify.bits import exponent, f32, keep_bits, odd, pow2, to_integer, two_sum
from mmaemu_jax.identify.member import Arithmetic
from mmaemu_jax.identify.plan import Plan, walk

_ABSENT = -10_000


@functools.lru_cache(maxsize=64)
def _decoded(fmt: Fp8Format, subnormals: str, zeros: str) -> tuple[np.ndarray, np.ndarray]:
    """Value (0 for what is not finite, R14) and exponent of each code."""
    value = np.where(np.isfinite(fmt.values), fmt.values, 0.0)
    if subnormals == "flushed":
        value = np.where(np.abs(value) < 2.0**fmt.emin, 0.0, value)
    e = exponent(value)
    if subnormals != "normalised":
        e = np.maximum(e, fmt.emin)
    return value, np.where(value == 0, fmt.emin if zeros == "lend" else _ABSENT, e)


@dataclasses.dataclass(frozen=True)
class Operands:
    """Codes of a GEMM's rows and columns at the positions where any is nonzero.

    Attributes:
        formats: of a and b.
        a, b: uint8 [rows, positions] and [columns, positions].
        positions: int64, ascending.
        k: length of the dot products.
        paired: output i is row i times column i; else all rows times all columns.
    """

    formats: tuple[Fp8Format, Fp8Format]
    a: np.ndarray
    b: np.ndarray
    positions: np.ndarray
    k: int
    paired: bool

    @classmethod
    def of(cls, formats, a: np.ndarray, b: np.ndarray, paired: bool) -> "Operands":
        """From codes a [M, K] and b [N, K]."""
        used = ((a & 0x7F) != 0).any(0) | ((b & 0x7F) != 0).any(0)
        positions = np.flatnonzero(used)
        return cls(formats, a[:, positions], b[:, positions], positions, a.shape[1], paired)

    @property
    def outputs(self) -> int:
        return len(self.a) if self.paired else len(self.a) * len(self.b)

    def products(self, columns: np.ndarray, how: Arithmetic) -> tuple[np.ndarray, np.ndarray]:
        """Values and exponents of the products at these columns, [outputs, columns] each."""
        (va, ea), (vb, eb) = (
            tuple(table[codes[:, columns]] for table in _decoded(fmt, how.subnormals, how.zeros))
            for fmt, codes in zip(self.formats, (self.a, self.b), strict=True)
        )
        if not self.paired:
            va, ea, vb, eb = va[:, None], ea[:, None], vb[None], eb[None]
        value, e = va * vb, ea + eb
        if how.products == "normalised":
            e = np.where(value == 0, e, exponent(value))
        shape = (self.outputs, len(columns))
        return value.reshape(shape), e.reshape(shape)


def accumulators(
    plan: Plan, settings: list[Arithmetic] | tuple[Arithmetic, ...], operands: Operands
) -> np.ndarray:
    """float64 [settings, outputs]: the accumulators, which float32 holds unless ``add`` is wider.

    An "exact" sum is rounded to odd, so that a later rounding to fewer bits is the right one.
    Settings may differ in frac and frac_out alone.
    """
    run = _Run(plan, settings, operands)
    index = np.arange(len(operands.positions))
    total = walk(plan.levels, index, operands.positions, operands.k, run.chain, run.add)
    shape = (len(settings), operands.outputs)
    if total is None:
        return np.zeros(shape)
    total = odd(*total) if isinstance(total, tuple) else total
    return np.broadcast_to(total + 0.0, shape)  # every chain starts from +0, so none ends at -0


class _Run:
    """One evaluation: what the nested levels share."""

    def __init__(self, plan: Plan, settings, operands: Operands):
        self.plan, self.operands = plan, operands
        self.how: Arithmetic = settings[0]
        self.frac = np.array([s.frac for s in settings])[:, None]
        self.frac_out = np.array([s.frac_out for s in settings])[:, None]
        self.add = _ADDERS[self.how.add]

    def chain(self, index: np.ndarray, own: np.ndarray):
        """The sum of a chain; ``index`` is into the operands' positions."""
        if self.plan.block == 1:
            return functools.reduce(self.add, map(self._term, self.plan.in_order(index, own)))
        first, *others = self.plan.blocks_of(index, own)
        c = self._block(first, None)
        for columns in others:
            if self.plan.late:
                c = self.add(c, self._block(columns, None))
            else:
                c = self._block(columns, c)
        return c

    def _term(self, column: int):
        value = self.operands.products(np.array([column]), self.how)[0].T
        return (value, np.zeros_like(value)) if self.how.add == "exact" else value

    def _block(self, columns: np.ndarray, c: np.ndarray | None) -> np.ndarray:
        """R4 to R7."""
        value, e = self.operands.products(columns, self.how)
        top = np.maximum(e.max(axis=1), -200)[None]
        if c is not None:
            top = np.maximum(top, np.where(c == 0, -200, exponent(c)))
        units = pow2(self.frac - top)
        scaled = units[..., None] * value[None] if len(columns) else np.zeros((*units.shape, 0))
        total = to_integer(scaled, self.how.align).sum(axis=2)
        if c is not None:
            total = total + to_integer(c * units, self.how.align)
        return keep_bits(total / units, self.frac_out, self.how.result)


def _add_toward_zero(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return keep_bits(odd(*two_sum(x, y)), np.array(23), "truncate")


def _add_exactly(x: tuple, y: tuple) -> tuple:
    """Sums of two float64 that together hold the sum exactly: FP8 sums span fewer than 106 bits."""
    s, missed = two_sum(x[0], y[0])
    return two_sum(s, missed + (x[1] + y[1]))


_ADDERS = {
    "f32": lambda x, y: f32(x + y),
    "f32 toward zero": _add_toward_zero,
    "f64": lambda x, y: x + y,
    "exact": _add_exactly,
}
