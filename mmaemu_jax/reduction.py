"""Sums of partial results in rank order, on bit patterns: what a reduction over devices returns.

XLA flushes subnormal float32 and may contract or elide float operations, none of which can touch
an integer (R26).
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mmaemu_jax.quantize import float32_bits
from mmaemu_jax.reference import _f64
from mmaemu_jax.reference.epilogue import round_to_half

_FLOAT32, _BFLOAT16 = np.dtype(np.float32), np.dtype(jnp.bfloat16)
REDUCE_DTYPES = (_FLOAT32, _BFLOAT16)


def sum_in_order(parts: Sequence[jax.Array], reduce_dtype: np.dtype) -> jax.Array:
    """((p0 + p1) + p2) + ... , every part and every sum rounded to ``reduce_dtype`` (RNE).

    Args:
        parts: at least one array of float32, bfloat16 or float16, all alike.
        reduce_dtype: float32 or bfloat16.

    Returns:
        The sum rounded once more, to the dtype of the parts; NaN is canonical (R19).
    """
    dtype = np.dtype(parts[0].dtype)
    terms = [_rounded(float32_bits(p), reduce_dtype) for p in parts]
    total = terms[0]
    for term in terms[1:]:
        # For bfloat16 the second rounding is that of the exact sum: 24 >= 2 * 8 + 2 bits.
        total = _rounded(add_float32(total, term), reduce_dtype)
    if dtype == _FLOAT32:
        return lax.bitcast_convert_type(_canonical(total), jnp.float32)
    return lax.bitcast_convert_type(round_to_half(total, dtype), dtype)


def add_float32(x: jax.Array, y: jax.Array) -> jax.Array:
    """RN32(x + y) of float32 bits (uint32); subnormals count, NaN is canonical (R19)."""
    x, y = (jnp.where(_magnitude(x) < _magnitude(y), *pair) for pair in ((y, x), (x, y)))
    large, small = _magnitude(x), _magnitude(y)
    subtract = (x ^ y) >> 31 == 1
    # Six more bits below the last, and whether any is set below those: the leading bit is at 29.
    exponent, (kept, shifted) = _biased(large), (_significand(v) << 6 for v in (large, small))
    distance = jnp.minimum(exponent - _biased(small), 31).astype(jnp.uint32)
    lost = (shifted & ((jnp.uint32(1) << distance) - 1)) != 0
    shifted = (shifted >> distance) | lost.astype(jnp.uint32)
    total = jnp.where(subtract, kept - shifted, kept + shifted)
    shift = lax.clz(total) - 1
    rounded = _f64.round_significand(
        total << shift, exponent - 126 - shift.astype(jnp.int32), 30, 23, _f64.F32_EMIN
    )
    magnitude = jnp.minimum(rounded, _f64.F32_INF)
    sign = x & jnp.uint32(0x80000000)
    zero = jnp.where(subtract, 0, sign)  # x - x is +0
    result = jnp.where(total == 0, zero, sign | magnitude)
    result = jnp.where(large == _f64.F32_INF, x, result)
    nan = (large > _f64.F32_INF) | (subtract & (small == _f64.F32_INF))
    return jnp.where(nan, jnp.uint32(_f64.F32_NAN), result)


def _magnitude(bits: jax.Array) -> jax.Array:
    return bits & jnp.uint32(0x7FFFFFFF)


def _biased(magnitude: jax.Array) -> jax.Array:
    return jnp.maximum(magnitude >> 23, 1).astype(jnp.int32)


def _significand(magnitude: jax.Array) -> jax.Array:
    fraction = magnitude & 0x7FFFFF
    return jnp.where(magnitude >> 23 == 0, fraction, fraction | 0x800000)


def _rounded(bits: jax.Array, dtype: np.dtype) -> jax.Array:
    """float32 bits of float32 ``bits`` rounded to ``dtype``."""
    if dtype == _FLOAT32:
        return bits
    return round_to_half(bits, dtype).astype(jnp.uint32) << 16


def _canonical(bits: jax.Array) -> jax.Array:
    return jnp.where(_magnitude(bits) > _f64.F32_INF, jnp.uint32(_f64.F32_NAN), bits)
