"""Quantisation to FP8 as the GPU's own casts do it: one float32 product, saturated, rounded (R18).

Integer operations on bit patterns throughout: XLA flushes subnormal float32 and may contract or
elide float operations, none of which can touch an integer (R26).
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mmaemu_jax.arguments import format_argument
from mmaemu_jax.call import Operand, array_operand, scale_operand
from mmaemu_jax.errors import UnsupportedFeatureError, message
from mmaemu_jax.formats import Fp8Format
from mmaemu_jax.operands import float32_array
from mmaemu_jax.reference import _f64
from mmaemu_jax.reference.epilogue import saturate_to_fp8

_FLOAT32, _FLOAT16 = np.dtype(np.float32), np.dtype(np.float16)
_BFLOAT16 = np.dtype(jnp.bfloat16)
_INPUT_DTYPES = (_FLOAT32, _BFLOAT16, _FLOAT16)


def quantize(x, dtype, scale=None) -> jax.Array:
    """saturate(RN32(float32(x) * scale)) in ``dtype``, never NaN for finite x and scale (R18).

    ``scale`` is the quantisation scale (largest FP8 value / amax); scaled_mm takes its inverse.

    Args:
        x: float32, bfloat16 or float16 array.
        dtype: float8_e4m3fn or float8_e5m2, or a name.
        scale: float32 array that broadcasts against x, a Python float (as float32), or None for 1.

    Returns:
        ``dtype``, of the broadcast shape. NaN becomes the code 0x7F, Inf the largest value.

    Raises:
        TypeError: an argument of another type or dtype.
        ValueError: shapes that do not broadcast.
        UnsupportedFeatureError: under jvp, vjp or grad, where zeros would be silently wrong.
    """
    fp8 = format_argument("quantize", "dtype", dtype)
    of_x = array_operand("quantize", "x", x)
    if of_x.dtype not in _INPUT_DTYPES:
        raise TypeError(
            message(
                f"quantize: x must be float32, bfloat16 or float16, got {of_x}.",
                ["convert it first, for example x.astype(jnp.float32)"],
            )
        )
    if scale is not None:
        _check_scale(of_x, scale_operand("quantize", "scale", scale))
        scale = float32_array(scale)
    return _quantize(fp8, jnp.asarray(x), scale)


def _check_scale(of_x: Operand, of_scale: Operand) -> None:
    if of_scale.dtype != _FLOAT32:
        raise TypeError(
            message(
                f"quantize: scale must be float32, got {of_scale}.",
                ["convert with jnp.asarray(scale, jnp.float32)", "pass a Python float"],
            )
        )
    try:
        jnp.broadcast_shapes(of_x.shape, of_scale.shape)
    except ValueError as error:
        raise ValueError(
            message(
                f"quantize: scale must broadcast against x, got {of_scale} and {of_x}.",
                ["reshape scale, for example to [M, 1] for one scale per row"],
            )
        ) from error


@partial(jax.custom_jvp, nondiff_argnums=(0,))
@partial(jax.jit, static_argnums=0)
def _quantize(fp8: Fp8Format, x: jax.Array, scale: jax.Array | None) -> jax.Array:
    bits = float32_bits(x)
    if scale is not None:
        bits = multiply_float32(bits, lax.bitcast_convert_type(scale, jnp.uint32))
    return lax.bitcast_convert_type(saturate_to_fp8(bits, fp8), fp8.dtype)


@_quantize.defjvp
def _quantize_jvp(fp8, primals, tangents):
    raise UnsupportedFeatureError(
        message(
            f"quantize: the rounding to {fp8.dtype.name} has no useful derivative.",
            [
                "quantize inside a function that has its own gradient, as mmaemu_jax.training does",
                "quantize(jax.lax.stop_gradient(x), ...)",
            ],
        )
    )


def float32_bits(x: jax.Array) -> jax.Array:
    """Bits (uint32) of float32(x), for x in float32, bfloat16 or float16; NaN stays some NaN."""
    if x.dtype == _FLOAT32:
        return lax.bitcast_convert_type(x, jnp.uint32)
    bits = lax.bitcast_convert_type(x, jnp.uint16).astype(jnp.uint32)
    if x.dtype == _BFLOAT16:
        return bits << 16
    sign, exponent, fraction = (bits >> 15) << 31, (bits >> 10) & 0x1F, bits & 0x3FF
    normal = ((exponent + (127 - 15)) << 23) | (fraction << 13)
    special = jnp.uint32(_f64.F32_INF) | (fraction << 13)
    # A subnormal is fraction * 2^-24: its leading bit becomes the hidden one.
    leading = 31 - lax.clz(fraction)
    subnormal = ((leading + (127 - 24)) << 23) | ((fraction << (23 - leading)) & 0x7FFFFF)
    subnormal = jnp.where(fraction == 0, 0, subnormal)
    magnitude = jnp.where(exponent == 0, subnormal, jnp.where(exponent == 0x1F, special, normal))
    return sign | magnitude


def multiply_float32(x: jax.Array, y: jax.Array) -> jax.Array:
    """RN32(x * y) of float32 bits (uint32); subnormals count, NaN is canonical (R19)."""
    sign = (x ^ y) & jnp.uint32(0x80000000)
    x, y = x & 0x7FFFFFFF, y & 0x7FFFFFFF
    (x_significand, x_exponent), (y_significand, y_exponent) = normalised(x), normalised(y)
    high, low = _product_48(x_significand, y_significand)
    # The product has 47 or 48 bits. Keep 30 and whether any below them is set, leading bit at 29:
    # rounding drops at least 6 of these, so the last one only breaks ties.
    kept = (high << 6) | (low >> 18) | ((low & 0x3FFFF) != 0).astype(jnp.uint32)
    carry = kept >> 29
    significand = jnp.where(carry == 1, kept, kept << 1)
    exponent = x_exponent + y_exponent + carry.astype(jnp.int32)
    rounded = _f64.round_significand(significand, exponent, 29, 23, _f64.F32_EMIN)
    magnitude = jnp.where(kept == 0, 0, jnp.minimum(rounded, _f64.F32_INF))
    infinite = jnp.maximum(x, y) == _f64.F32_INF
    nan = (jnp.maximum(x, y) > _f64.F32_INF) | (infinite & (jnp.minimum(x, y) == 0))
    magnitude = jnp.where(infinite, jnp.uint32(_f64.F32_INF), magnitude)
    return jnp.where(nan, jnp.uint32(_f64.F32_NAN), sign | magnitude)


def normalised(magnitude: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Significand with its leading bit at 23 (0 for zero) and exponent of float32 magnitudes."""
    biased = magnitude >> 23
    fraction = magnitude & 0x7FFFFF
    significand = jnp.where(biased == 0, fraction, fraction | 0x800000)
    shift = lax.clz(significand) - 8
    exponent = jnp.maximum(biased, 1).astype(jnp.int32) - 127 - shift.astype(jnp.int32)
    return significand << shift, exponent


def _product_48(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The product of two 24-bit integers as two 24-bit words."""
    x_high, x_low, y_high, y_low = x >> 12, x & 0xFFF, y >> 12, y & 0xFFF
    middle = x_high * y_low + x_low * y_high  # below 2^25
    low = x_low * y_low + ((middle & 0xFFF) << 12)  # below 2^25
    return x_high * y_high + (middle >> 12) + (low >> 24), low & 0xFFFFFF
