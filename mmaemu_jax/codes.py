"""Floating-point values that FP8 holds exactly, to FP8 codes: a lookup, no rounding."""

import ml_dtypes
import numpy as np

from mmaemu_jax.errors import message
from mmaemu_jax.formats import Fp8Format

#: Dtypes whose every value is exactly a float64.
FLOAT_DTYPES = tuple(np.dtype(t) for t in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64))


def exact_codes(function: str, name: str, values: np.ndarray, fp8: Fp8Format) -> np.ndarray:
    """``values`` in ``fp8.dtype``: the sign of zero, Inf and NaN (as R19's 0x7F) are kept.

    Raises:
        ValueError: a value that ``fp8`` does not hold; the message names the first.
    """
    wide = values.astype(np.float64)
    magnitudes = fp8.values[:128]
    ordered = magnitudes[~np.isnan(magnitudes)]  # ascending, as codes are
    codes = np.minimum(np.searchsorted(ordered, np.abs(wide)), len(ordered) - 1)
    nan = np.isnan(wide)
    wrong = (ordered[codes] != np.abs(wide)) & ~nan
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(
            message(
                f"{function}: {name} must hold {fp8.dtype.name} values exactly, got "
                f"{float(wide[where])!r} at index {where} ({values.dtype} of shape "
                f"{values.shape}).",
                ["round first with mmaemu_jax.quantize", "pass another fmt"],
            )
        )
    signed = codes | np.where(np.signbit(wide), 0x80, 0)
    return np.where(nan, 0x7F, signed).astype(np.uint8).view(fp8.dtype)
