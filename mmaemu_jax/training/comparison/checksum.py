"""A checksum of every bit of a pytree, computed on its device: do two runs still agree?"""

import jax
import jax.numpy as jnp
from jax import lax

#: Odd multipliers of the two 32-bit halves (those of MurmurHash3 and xxHash).
_HALVES = ((0x85EBCA6B, 0xC2B2AE35), (0x9E3779B1, 0x27D4EB2F))


def checksum(tree) -> jax.Array:
    """uint32 [2] that changes, but for a chance of 2^-64, when any bit of any leaf does.

    Integer sums throughout, so the value does not depend on threads or devices.
    """
    halves = [jnp.uint32(0), jnp.uint32(0)]
    for number, leaf in enumerate(jax.tree.leaves(tree)):
        words = _words(leaf)
        index = lax.iota(jnp.uint32, words.size)
        for half, (first, second) in enumerate(_HALVES):
            mixed = (words ^ (words >> 16)) * jnp.uint32(first)
            mixed = (mixed ^ (mixed >> 13)) + index * jnp.uint32(second)
            mixed = (mixed ^ (mixed >> 16)) * jnp.uint32(second)
            total = jnp.sum(mixed ^ (mixed >> 15), dtype=jnp.uint32)
            halves[half] = (halves[half] + total + jnp.uint32(number)) * jnp.uint32(first)
    return jnp.stack(halves)


def _words(leaf) -> jax.Array:
    """The bits of ``leaf`` as a vector of uint32."""
    array = jnp.asarray(leaf)
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    if array.dtype == jnp.bool_:
        array = array.astype(jnp.uint8)
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        array = jnp.stack([array.real, array.imag])
    size = min(array.dtype.itemsize, 4)
    return lax.bitcast_convert_type(array, f"uint{8 * size}").reshape(-1).astype(jnp.uint32)
