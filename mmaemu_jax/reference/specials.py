"""Where the IEEE value of a dot product is not finite (R14)."""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from mmaemu_jax.formats import Fp8Format


def ieee_class(a: Array, b: Array, formats: tuple[Fp8Format, Fp8Format], c: Array) -> Array:
    """float64 ``[B, M, N]``: NaN or +-Inf where sum(a b) + c is, something finite elsewhere.

    Finite factors are replaced by their signs, so the finite part counts by ones and stays exact,
    while NaN, Inf * 0 and Inf - Inf follow from IEEE arithmetic itself.

    Args:
        a: uint8 codes ``[K, B, M]``.
        b: uint8 codes ``[K, B, N]``.
        formats: what the codes of a and b mean.
        c: float64 ``[B, M, N]``, the initial accumulator.
    """
    start = _finite_to_sign(c)
    a_table, b_table = (jnp.asarray(_finite_to_sign(f.values)) for f in formats)

    def any_special(codes, table):
        return jnp.any(~jnp.isfinite(table)[codes.astype(jnp.int32)])

    def add_products(i, total):
        x, y = a_table[a[i].astype(jnp.int32)], b_table[b[i].astype(jnp.int32)]
        return total + x[:, :, None] * y[:, None, :]

    return lax.cond(
        any_special(a, a_table) | any_special(b, b_table),
        lambda: lax.fori_loop(0, a.shape[0], add_products, start),
        lambda: start,
    )


def _finite_to_sign(x):
    xp = np if isinstance(x, np.ndarray) else jnp
    return xp.where(xp.isfinite(x), xp.sign(x), x)
