"""Random products that show which bits a step keeps, of questions that share one operand.

The shared operand holds wide values and, at random pairs of positions, opposite ones. The other
one decides which of these are large, and which cancel.
"""

from typing import Any

import numpy as np

from mmaemu_jax.identify.bits import exponent
from mmaemu_jax.identify.probes import SIGN, Formats, Sparse, power, random_code
from mmaemu_jax.identify.questions import Layout
from mmaemu_jax.identify.step_probes import draw_steps


def draw_probes(
    rng: np.random.Generator, formats: Formats, cells: list[np.ndarray], layout: Layout
) -> Sparse:
    """Probes of the steps in these cells, as many as ``layout`` has questions."""
    if layout.each == 1:
        return draw_steps(rng, formats, cells, layout.count)
    positions = np.concatenate(cells)
    cell = np.repeat(np.arange(len(cells)), [len(c) for c in cells])
    mirror = rng.permutation(len(positions))
    mirror = mirror[: len(mirror) // 2 * 2].reshape(2, -1)
    shared = np.tile(_shared(rng, formats[layout.shared], layout.leaders, mirror), (layout.each, 1))
    own = _Own(rng, formats, layout, cell, mirror, shared).codes
    order = np.argsort(positions)
    codes = [x[:, order] for x in ((shared, own) if layout.shared == 0 else (own, shared))]
    return Sparse(codes[0], codes[1], positions[order])


def _shared(rng, fmt, leaders: int, mirror: np.ndarray) -> np.ndarray:
    """Codes of all exponents, many of them powers of two, opposite at the pairs of ``mirror``."""
    e = rng.integers(fmt.emin - 3, fmt.emax + 1, (leaders, mirror.max() + 1))
    codes = random_code(rng, fmt, e)
    plain = (rng.random(codes.shape) < 0.3) & (e >= fmt.emin)
    codes[plain] &= np.uint8(0xFF & -(1 << fmt.mantissa_bits))
    codes[:, mirror[1]] = codes[:, mirror[0]] ^ SIGN
    return codes


class _Own:
    """The codes that every question has for itself."""

    def __init__(self, rng, formats: Formats, layout: Layout, cell, mirror, shared: np.ndarray):
        self.rng, self.cell, self.mirror = rng, cell, mirror
        self.fmt = formats[1 - layout.shared]
        values = formats[layout.shared].values[shared]
        self.e_shared, self.sign = exponent(values), shared & SIGN
        self.low = sum(f.emin for f in formats)
        self.high = sum(f.emax for f in formats)
        self.codes = self._around()
        kind = rng.random(layout.count)
        self._cancel(np.flatnonzero(kind < 0.7))
        self._open_window(np.flatnonzero((kind > 0.4) & (kind < 0.7)))
        self._fill(np.flatnonzero((kind > 0.7) & (kind < 0.85)))
        self._put_near_ties(np.flatnonzero(kind > 0.85))

    def _with_products(self, e: np.ndarray, at: Any = ...) -> np.ndarray:
        """Codes that bring the products at ``at`` as close to these exponents as they can."""
        own = np.clip(e - self.e_shared[at], self.fmt.emin - 3, self.fmt.emax)
        return random_code(self.rng, self.fmt, own)

    def _around(self) -> np.ndarray:
        """Products around one exponent per cell, and zeros."""
        rng, shape = self.rng, self.e_shared.shape
        cells = (shape[0], self.cell.max() + 1)
        centre = rng.integers(self.low, self.high + 1, cells)[:, self.cell]
        spread = rng.choice([0, 2, 6, 12, 24], cells)[:, self.cell]
        codes = self._with_products(centre - (rng.random(shape) * (spread + 1)).astype(np.int64))
        silent = (rng.random(cells) < 0.25)[:, self.cell]
        absent = rng.random(shape) < rng.choice([0.0, 0.4, 0.8, 0.9], (shape[0], 1))
        codes[silent | absent] &= SIGN
        return codes

    def _cancel(self, rows: np.ndarray) -> None:
        """Some or all of the mirrored products cancel."""
        x, y = self.mirror
        often = self.rng.choice([0.1, 0.5, 1.0], (len(rows), 1))
        same = self.rng.random((len(rows), len(x))) < often
        own = self.codes[rows]
        own[:, y] = np.where(same, own[:, x], own[:, y])
        self.codes[rows] = own

    def _open_window(self, rows: np.ndarray) -> None:
        """Two large products that cancel, and a few small ones: nothing else."""
        rng, n = self.rng, len(rows)
        self.codes[rows] &= SIGN
        at = rng.integers(0, self.e_shared.shape[1], (5, n))
        x, y = self.mirror[:, rng.integers(0, self.mirror.shape[1], n)]
        top = self.e_shared[rows, x] + self.fmt.emax - rng.integers(0, 3, n)
        for column in at[: rng.integers(2, 6)]:
            few = self._with_products(top - rng.integers(6, 30, n), (rows, column))
            self.codes[rows, column] = np.where(rng.random(n) < 0.7, few, 0)
        self.codes[rows, x] = self.codes[rows, y] = self._with_products(top, (rows, x))

    def _fill(self, rows: np.ndarray) -> None:
        """A cell full of products of one sign and nearly one size, but for a few small ones; what
        is mirrored outside of it takes its large ones back."""
        rng = self.rng
        inside = self.cell == rng.integers(0, min(2, self.cell.max() + 1))
        size = self.e_shared[rows].max(1) + self.fmt.emin + rng.integers(0, 3, len(rows))
        gap = rng.integers(4, 27, (len(rows), len(self.cell)))
        small = rng.random(gap.shape) < rng.choice([0.0, 0.05, 0.1], (len(rows), 1))
        codes = self._with_products(size[:, None] - np.where(small, gap, 0), rows)
        codes = (codes & 0x7F) | self.sign[rows]
        codes[:, ~inside] = 0
        for x, y in (self.mirror, self.mirror[::-1]):
            back = (inside[x] & ~inside[y]) & (rng.random((len(rows), 1)) < 0.7)
            codes[:, y] = np.where(back & ~small[:, x], codes[:, x], codes[:, y])
        self.codes[rows] = codes

    def _put_near_ties(self, rows: np.ndarray) -> None:
        """Three powers of two: large, about half of its last bit, and a tiny one."""
        rng, n = self.rng, len(rows)
        self.codes[rows] &= SIGN
        e = self.high - rng.integers(0, 12, n)
        gaps = rng.choice([3, 4, 8, 11, 12, 14, 15, 23, 24, 25], n)
        for wanted in (e, e - gaps, np.full(n, self.low)):
            column = rng.integers(0, self.e_shared.shape[1], n)
            own = np.clip(wanted - self.e_shared[rows, column], self.fmt.emin, self.fmt.emax)
            sign = rng.integers(0, 2, n) * SIGN
            self.codes[rows, column] = power(self.fmt, own) | sign
