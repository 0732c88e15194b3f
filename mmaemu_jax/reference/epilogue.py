"""The epilogue on bit patterns (R16 to R19), and rounding to the output formats by integers."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from mmaemu_jax.epilogue import CANONICAL_NAN
from mmaemu_jax.formats import Fp8Format, format_of
from mmaemu_jax.reference import _f64

_BFLOAT16, _FLOAT32 = np.dtype(jnp.bfloat16), np.dtype(np.float32)

#: Fraction bits and emin of the two 16-bit outputs.
_HALF_FORMATS = {_BFLOAT16: (7, -126), np.dtype(np.float16): (10, -14)}


def apply(
    acc: Array,
    scale_a: Array,
    scale_b: Array,
    scale_result: Array | None = None,
    *,
    out_dtype: np.dtype,
) -> Array:
    """Output bits (uint32, uint16 or uint8) of accumulators ``acc`` (R16 to R19).

    Args:
        acc: float64 holding float32 values, Inf and NaN included.
        scale_a, scale_b: uint32 float32 bits, broadcastable to acc.
        scale_result: likewise or None; used by float8 outputs only.
        out_dtype: one of the five output dtypes.
    """
    alpha = _f64.f32_value(_f64.multiply_f32(scale_a, scale_b))
    product = acc * alpha
    # The +0 of R17, without a float operation that XLA may simplify away.
    y = jnp.where(product == 0, jnp.uint32(0), _f64.f32_bits(product))
    if out_dtype == _FLOAT32:
        return y
    fmt = format_of(out_dtype)
    if fmt is None:
        return round_to_half(y, out_dtype)
    if scale_result is not None:
        y = _f64.multiply_f32(y, scale_result)
    return saturate_to_fp8(y, fmt)


def round_to_half(y: Array, dtype: np.dtype) -> Array:
    """bfloat16 or float16 bits (uint16) nearest to float32 bits ``y``; overflow gives Inf."""
    bits, emin = _HALF_FORMATS[dtype]
    infinity = 0x7FFF >> bits << bits
    magnitude = jnp.minimum(_round_f32(y, bits, emin), infinity)
    return _signed(y, magnitude, 16, CANONICAL_NAN[dtype]).astype(jnp.uint16)


def saturate_to_fp8(y: Array, fmt: Fp8Format) -> Array:
    """Codes (uint8) of float32 bits ``y``: saturate (Inf too, NaN passes), then RNE (R18).

    Integer operations on uint32 only: usable with x64 off, under jit and vmap.
    """
    largest = int(np.float32(fmt.max_finite).view(np.uint32))
    saturated = jnp.minimum(y & 0x7FFFFFFF, largest)
    magnitude = _round_f32(saturated, fmt.mantissa_bits, fmt.emin)
    return _signed(y, magnitude, 8, CANONICAL_NAN[fmt.dtype]).astype(jnp.uint8)


def _round_f32(y: Array, bits: int, emin: int) -> Array:
    """Magnitude bits of float32 bits ``y`` in a narrower format without a largest exponent."""
    biased = ((y >> _f64.F32_FRACTION_BITS) & 0xFF).astype(jnp.int32)
    hidden = jnp.where(biased == 0, 0, 1 << _f64.F32_FRACTION_BITS).astype(jnp.uint32)
    significand = (y & 0x7FFFFF) | hidden
    e = jnp.maximum(biased, 1) - 127
    return _f64.round_significand(significand, e, _f64.F32_FRACTION_BITS, bits, emin)


def _signed(y: Array, magnitude: Array, width: int, nan: int) -> Array:
    """``magnitude`` with the sign of float32 bits ``y``; the canonical NaN where y is NaN (R19)."""
    sign = (y >> 31) << (width - 1)
    return jnp.where((y & 0x7FFFFFFF) > _f64.F32_INF, jnp.uint32(nan), sign | magnitude)
