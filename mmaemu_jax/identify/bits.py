"""Float64 arrays rounded by their bits, and sums that keep what a float64 loses.

Everything here is numpy on the caller's thread; no function is meant for values that are
subnormal as float64, which no FP8 GEMM with float32 scales reaches.
"""

import dataclasses

import numpy as np

_FRACTION = 52
_BIAS = 1023


def exponent(x: np.ndarray) -> np.ndarray:
    """floor(log2 |x|) as int64; -1023 for zero."""
    return ((np.asarray(x).view(np.int64) >> _FRACTION) & 0x7FF) - _BIAS


def pow2(e: np.ndarray) -> np.ndarray:
    """2^e as float64."""
    return ((np.asarray(e, np.int64) + _BIAS) << _FRACTION).view(np.float64)


def keep_bits(x: np.ndarray, bits: np.ndarray, mode: str) -> np.ndarray:
    """``x`` with ``bits`` fraction bits, by "truncate" or to "nearest" even; a zero is +0."""
    drop = np.asarray(_FRACTION - bits, np.int64)
    i = x.view(np.int64)
    if mode == "nearest":
        i = i + (((np.int64(1) << (drop - 1)) - 1) + ((i >> drop) & 1))
    kept = (i >> drop) << drop
    return kept.view(np.float64) + 0.0


def to_integer(x: np.ndarray, mode: str) -> np.ndarray:
    """``x`` as an integer: "truncate", "nearest" (even) or "floor"."""
    return {"truncate": np.trunc, "nearest": np.rint, "floor": np.floor}[mode](x)


def f32(x: np.ndarray) -> np.ndarray:
    """RN32 of float64, as float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(x).astype(np.float32).astype(np.float64)


def two_sum(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """RN(x + y) and what it misses, exactly (Knuth)."""
    with np.errstate(invalid="ignore", over="ignore"):
        s = x + y
        rest = s - x
        return s, (x - (s - rest)) + (y - rest)


def odd(s: np.ndarray, missed: np.ndarray) -> np.ndarray:
    """``s + missed`` rounded to odd: any later rounding to fewer than 52 bits is the right one."""
    even = (s.view(np.int64) & 1) == 0
    wrong = (missed != 0) & even & np.isfinite(s)
    return np.where(wrong, np.nextafter(s, np.where(missed > 0, np.inf, -np.inf)), s)


def two_product(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """RN(x * y) and what it misses, exactly (Dekker), far from overflow and underflow."""

    def halves(v):
        high = (v.view(np.int64) & ~((np.int64(1) << 26) - 1)).view(np.float64)
        return high, v - high

    p = x * y
    (xh, xl), (yh, yl) = halves(x), halves(y)
    return p, ((xh * yh - p) + xh * yl + xl * yh) + xl * yl


@dataclasses.dataclass(frozen=True)
class Rounding:
    """A floating-point format to round to: stored fraction bits and exponent range."""

    bits: int
    emin: int
    largest: float

    def apply(self, x: np.ndarray, mode: str) -> np.ndarray:
        """``x`` on this format's grid as float64, overflow left as it falls beyond ``largest``."""
        with np.errstate(invalid="ignore", over="ignore"):
            e = np.maximum(exponent(x), self.emin)
            grid = pow2(e - self.bits)
            return np.where(np.isfinite(x), np.copysign(to_integer(x / grid, mode) * grid, x), x)
