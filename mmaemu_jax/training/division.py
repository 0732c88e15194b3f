"""float32 division on bit patterns: XLA multiplies by a reciprocal and flushes subnormals (R26)."""

import jax
import jax.numpy as jnp
from jax import lax

from mmaemu_jax.quantize import normalised
from mmaemu_jax.reference import _f64

ONE = 0x3F800000


def divide_float32(x: jax.Array, y: jax.Array) -> jax.Array:
    """RN32(x / y) of float32 bits (uint32); subnormals count, NaN is canonical (R19)."""
    sign = (x ^ y) & jnp.uint32(0x80000000)
    x, y = x & 0x7FFFFFFF, y & 0x7FFFFFFF
    (x_significand, x_exponent), (y_significand, y_exponent) = normalised(x), normalised(y)
    # The quotient has 28 or 29 bits and then whether anything is left: rounding drops at least
    # 5 of these, so the last one only breaks ties.
    kept = _quotient_29(x_significand, jnp.maximum(y_significand, 1))
    carry = kept >> 28
    significand = jnp.where(carry == 1, kept, kept << 1)
    exponent = x_exponent - y_exponent - 1 + carry.astype(jnp.int32)
    rounded = _f64.round_significand(significand, exponent, 28, 23, _f64.F32_EMIN)
    magnitude = jnp.where((x == 0) | (y == _f64.F32_INF), 0, jnp.minimum(rounded, _f64.F32_INF))
    magnitude = jnp.where((x == _f64.F32_INF) | (y == 0), jnp.uint32(_f64.F32_INF), magnitude)
    undefined = (x == y) & ((x == 0) | (x == _f64.F32_INF))
    nan = undefined | (jnp.maximum(x, y) > _f64.F32_INF)
    return jnp.where(nan, jnp.uint32(_f64.F32_NAN), sign | magnitude)


def reciprocal_float32(x: jax.Array) -> jax.Array:
    """RN32(1 / x) of float32 bits (uint32)."""
    return divide_float32(jnp.full_like(x, ONE), x)


def _quotient_29(x: jax.Array, y: jax.Array) -> jax.Array:
    """floor(2^28 x / y) of 24-bit integers x < 2 y; the last bit is set if a remainder is left.

    A loop, since XLA fuses straight-line code into every consumer, which takes long to compile.
    """

    def seven_bits(state):
        count, quotient, rest = state
        rest = rest << 7  # below 2^31
        return count + 1, (quotient << 7) | lax.div(rest, y), lax.rem(rest, y)

    start = (0, lax.div(x, y), lax.rem(x, y))
    _, quotient, rest = lax.while_loop(lambda state: state[0] < 4, seven_bits, start)
    return quotient | (rest != 0).astype(jnp.uint32)
