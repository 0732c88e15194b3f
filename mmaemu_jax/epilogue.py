"""Facts of the epilogue (R16 to R19): output dtypes and their canonical NaN."""

import ml_dtypes
import numpy as np

from mmaemu_jax.formats import E4M3, E5M2

#: The five output dtypes of the reference platforms, with the bits of their canonical NaN (R19).
CANONICAL_NAN: dict[np.dtype, int] = {
    np.dtype(np.float32): 0x7FFFFFFF,
    np.dtype(ml_dtypes.bfloat16): 0x7FFF,
    np.dtype(np.float16): 0x7FFF,
    E4M3.dtype: 0x7F,
    E5M2.dtype: 0x7F,
}

OUTPUT_DTYPES: tuple[np.dtype, ...] = tuple(CANONICAL_NAN)
