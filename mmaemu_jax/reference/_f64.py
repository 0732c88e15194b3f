"""Exact float64 building blocks, and float32 as bit patterns.

Every float64 operation of the reference is exact: its result is a float64 whatever the rounding
mode, so contraction into FMAs, reordering and double rounding cannot change a bit. The magnitudes
stay between 2^-298 (a product of two float32 subnormals) and 2^257, so no float64 is subnormal
and XLA's flushing of subnormals has nothing to flush. Rounding is done on integers.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

_BIAS = 1023
_FRACTION_BITS = 52

F32_FRACTION_BITS = 23
F32_EMIN, F32_EMAX = -126, 127
F32_INF = 0x7F800000
F32_NAN = 0x7FFFFFFF


def x64():
    """The context in which the reference is traced; what leaves it is at most 32 bits wide."""
    return jax.enable_x64(True)


def loop(count, body, start):
    """Apply ``x = body(i, x)`` for i in 0..count-1; ``count`` may be traced.

    A bare while loop: fori_loop with a static count becomes a scan with a second counter, which
    costs a few small kernels, and so compile time, per loop.
    """

    def step(state):
        i, x = state
        return i + 1, body(i, x)

    return lax.while_loop(lambda state: state[0] < count, step, (jnp.int64(0), start))[1]


def exponent(x: Array) -> Array:
    """floor(log2 |x|) of a float64 as int32; for zero -1023, below every real one."""
    bits = lax.bitcast_convert_type(x, jnp.int64)
    return ((bits >> _FRACTION_BITS) & 0x7FF).astype(jnp.int32) - _BIAS


def pow2(e: Array) -> Array:
    """2^e as float64, for integers e in -1022..1023."""
    bits = (e.astype(jnp.int64) + _BIAS) << _FRACTION_BITS
    return lax.bitcast_convert_type(bits, jnp.float64)


def round_significand(
    significand: Array, e: Array, source_bits: int, bits: int, emin: int
) -> Array:
    """Round to nearest even, to a format with ``bits`` fraction bits and subnormals below emin.

    The value is ``significand * 2^(e - source_bits)`` with unsigned integers ``significand`` below
    2^(source_bits + 1) and a signed ``e``. Returns the magnitude bits (biased exponent and
    fraction) in the dtype of ``significand``, as if there were no largest exponent.
    """
    dtype = significand.dtype
    extra = jnp.clip(emin - e, 0, bits + 2)  # subnormal results lose more bits
    drop = (source_bits - bits + extra).astype(dtype)
    kept = significand >> drop
    rest = significand - (kept << drop)
    half = jnp.ones((), dtype) << (drop - 1)
    up = (rest > half) | ((rest == half) & ((kept & 1) == 1))
    # A kept hidden bit, and a carry out of the fraction, both count one exponent step.
    return (jnp.maximum(e - emin, 0).astype(dtype) << bits) + kept + up.astype(dtype)


def f32_value(bits: Array) -> Array:
    """The float64 equal to a float32 given as uint32 bits: subnormals, Inf and NaN included."""
    biased = ((bits >> F32_FRACTION_BITS) & 0xFF).astype(jnp.int64)
    fraction = (bits & 0x7FFFFF).astype(jnp.int64)
    widened = jnp.where(biased == 0xFF, 0x7FF, biased - 127 + _BIAS)
    normal = (widened << _FRACTION_BITS) | (fraction << (_FRACTION_BITS - F32_FRACTION_BITS))
    subnormal = fraction.astype(jnp.float64) * 2.0**-149
    magnitude = jnp.where(biased == 0, lax.bitcast_convert_type(subnormal, jnp.int64), normal)
    sign = (bits >> 31).astype(jnp.int64) << 63
    return lax.bitcast_convert_type(sign | magnitude, jnp.float64)


def f32_bits(x: Array) -> Array:
    """RN32(x) as uint32 bits, one rounding: subnormal results, signed zero, Inf, NaN (R19)."""
    bits = lax.bitcast_convert_type(x, jnp.uint64)
    biased = (bits >> _FRACTION_BITS) & 0x7FF
    # Zero has no hidden bit, but rounds to zero with it too.
    significand = (bits & ((1 << _FRACTION_BITS) - 1)) | (1 << _FRACTION_BITS)
    rounded = round_significand(
        significand, biased.astype(jnp.int64) - _BIAS, _FRACTION_BITS, F32_FRACTION_BITS, F32_EMIN
    )
    magnitude = jnp.minimum(rounded, F32_INF).astype(jnp.uint32)
    sign = (bits >> 63).astype(jnp.uint32) << 31
    return jnp.where(x != x, jnp.uint32(F32_NAN), sign | magnitude)


def add_f32(x: Array, y: Array) -> Array:
    """RN32(x + y) of float32 values held in float64, Inf and NaN included; no finite sum overflows.

    An addend below 2^(e - 27), e the larger exponent, is less than a quarter of the last bit of
    the other, whatever their signs, so +0 replaces it: the float64 sum then spans at most 52
    bits. A sum below 2^-126 is a multiple of 2^-149, so clearing 29 bits of it clears nothing.
    """
    e = jnp.maximum(exponent(x), exponent(y))

    def compact(v):
        return jnp.where(exponent(v) < e - 27, 0.0, v)

    bits = lax.bitcast_convert_type(compact(x) + compact(y), jnp.uint64)
    dropped = _FRACTION_BITS - F32_FRACTION_BITS
    odd = (bits >> dropped) & 1
    bits = (bits + ((1 << (dropped - 1)) - 1) + odd) & np.uint64(2**64 - (1 << dropped))
    return lax.bitcast_convert_type(bits, jnp.float64)


def multiply_f32(x_bits: Array, y_bits: Array) -> Array:
    """RN32(x * y) of float32 bit patterns, as uint32 bits: the product of 24 by 24 bits is exact.

    Subnormal operands and results count; NaN is canonical. Usable with x64 off, under jit.
    """
    with x64():
        return f32_bits(f32_value(x_bits) * f32_value(y_bits))
