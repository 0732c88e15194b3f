"""What rounding float32 to an output dtype means, from the table of the values it can give.

Every format's magnitudes are listed in code order, with exact midpoints in float64; a number takes
the code of the interval between midpoints it lies in, and on a midpoint the even code. Nothing is
shared with the two implementations, which shift integers.
"""

import ml_dtypes
import numpy as np

from mmaemu_jax.epilogue import CANONICAL_NAN
from mmaemu_jax.formats import format_of


class RoundingTable:
    """Rounds magnitudes to one of the 8- or 16-bit output dtypes, to nearest even (R18)."""

    def __init__(self, dtype: np.dtype):
        self._dtype = np.dtype(dtype)
        unsigned = np.dtype(f"u{self._dtype.itemsize}")
        self._sign_bit = unsigned.type(1 << (8 * unsigned.itemsize - 1))
        codes = np.arange(int(self._sign_bit), dtype=unsigned)
        with np.errstate(invalid="ignore"):  # signalling NaN
            values = codes.view(self._dtype).astype(np.float64)
        # FP8 saturates: beyond the last value, Inf included, is the last value. The others go on
        # as if there were one more binade, whose first code is Inf's.
        values = values[np.isfinite(values)]  # all at the front
        step = values[-1] - values[-2]
        self._last_code = unsigned.type(len(values) - (1 if format_of(dtype) else 0))
        self._midpoints = (values + np.append(values[1:], values[-1] + step)) / 2

    def round(self, bits: np.ndarray) -> np.ndarray:
        """Codes of float32 ``bits`` (uint32), NaN canonical."""
        magnitude_bits = bits & np.uint32(0x7FFFFFFF)
        is_nan = magnitude_bits > 0x7F800000
        magnitude = np.where(is_nan, np.uint32(0), magnitude_bits).view(np.float32)
        magnitude = magnitude.astype(np.float64)
        below = np.searchsorted(self._midpoints, magnitude, side="left")
        on_midpoint = self._midpoints[np.minimum(below, len(self._midpoints) - 1)] == magnitude
        code = below + (on_midpoint & (below % 2 == 1))
        code = np.minimum(code, self._last_code).astype(self._last_code.dtype)
        code |= np.where(bits >> 31, self._sign_bit, 0).astype(code.dtype)
        return np.where(is_nan, code.dtype.type(CANONICAL_NAN[self._dtype]), code)


_TABLES = {
    np.dtype(dtype): RoundingTable(dtype)
    for dtype in (
        ml_dtypes.bfloat16,
        np.float16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e5m2,
    )
}


def unscaled_epilogue(bits: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """R17 to R19 of accumulators given as float32 bits, with unit scales: bits of ``dtype``."""
    y = np.where(bits == 0x80000000, np.uint32(0), bits)  # -0 * 1 + (+0)
    if np.dtype(dtype) in _TABLES:
        return _TABLES[np.dtype(dtype)].round(y)
    return np.where((y & 0x7FFFFFFF) > 0x7F800000, np.uint32(CANONICAL_NAN[np.dtype(dtype)]), y)
