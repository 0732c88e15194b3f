"""Operands that ask one question per output, as codes."""

import dataclasses

import numpy as np

from mmaemu_jax.formats import Fp8Format
from mmaemu_jax.identify.evaluate import Operands
from mmaemu_jax.identify.questions import outputs

SIGN = 0x80
Formats = tuple[Fp8Format, Fp8Format]


@dataclasses.dataclass(frozen=True)
class Sparse:
    """Pairs of rows that are zero but at a few columns: codes a, b uint8 [questions, columns]."""

    a: np.ndarray
    b: np.ndarray
    positions: np.ndarray

    def __getitem__(self, rows) -> "Sparse":
        return Sparse(self.a[rows], self.b[rows], self.positions)

    def __len__(self) -> int:
        return len(self.a)

    def operands(self, formats: Formats, k: int) -> Operands:
        """For evaluation, each pair by itself."""
        used = ((self.a | self.b) & ~np.uint8(SIGN) & 0xFF).any(0)
        return Operands(formats, self.a[:, used], self.b[:, used], self.positions[used], k, True)

    def matrices(self, shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Codes a [M, K] and b [N, K] of a call that asks them, zero elsewhere."""
        m, n, k = shape
        a, b = np.zeros((m, k), np.uint8), np.zeros((n, k), np.uint8)
        rows, columns = outputs(shape, len(self))
        a[rows[:, None], self.positions] = self.a
        b[columns[:, None], self.positions] = self.b
        return a, b


def power(fmt: Fp8Format, e):
    """The code of 2^e, a normal number."""
    return (e + fmt.bias) << fmt.mantissa_bits


def factors(rng, formats: Formats, e: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Random codes whose exponents sum to ``e``, below emin by subnormals."""
    fmt_a, fmt_b = formats
    lowest = np.maximum(fmt_a.emin - 3, e - fmt_b.emax)
    highest = np.maximum(lowest, np.minimum(fmt_a.emax, e - fmt_b.emin + 3))
    e_a = lowest + (rng.random(e.shape) * (highest - lowest + 1)).astype(np.int64)
    return random_code(rng, fmt_a, e_a), random_code(rng, fmt_b, e - e_a)


def random_code(rng, fmt: Fp8Format, e: np.ndarray) -> np.ndarray:
    """Random finite codes with these exponents, which below emin are those of subnormals."""
    bits = fmt.mantissa_bits
    fraction = rng.integers(0, 1 << bits, e.shape)
    normal = ((np.maximum(e, fmt.emin) + fmt.bias) << bits) | fraction
    subnormal = ((1 << bits) | fraction) >> np.clip(fmt.emin - e, 1, bits)
    code = np.minimum(np.where(e >= fmt.emin, normal, np.maximum(subnormal, 1)), fmt.largest_code)
    return (code | rng.integers(0, 2, e.shape) * SIGN).astype(np.uint8)
