"""Bounded memory: a GEMM's outputs tile by tile, over batch, rows and columns."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from mmaemu_jax.reference import _f64

Shape = tuple[int, int, int]

#: Outputs computed at once: small enough for a second-level cache, large enough to hide loops.
_TILE_OUTPUTS = 4096
#: Bound on the bytes of codes one tile copies per operand.
_PANEL_BYTES = 1 << 24


class Operand(NamedTuple):
    """Bits ``[own batch, ...]`` and, as ``[B]``, which of them each batch element uses."""

    bits: Array
    where: Array

    @classmethod
    def of(cls, x: Array, batch: tuple[int, ...]) -> "Operand":
        """The operand ``x`` ``[*L, ...]`` broadcast to ``[*batch, ...]``, without copies."""
        own = x.shape[: len(batch)]
        unsigned = jnp.uint8 if x.dtype.itemsize == 1 else jnp.uint32
        bits = lax.bitcast_convert_type(x, unsigned)
        bits = bits.reshape(math.prod(own), *x.shape[len(batch) :])
        where = np.broadcast_to(np.arange(math.prod(own)).reshape(own), batch)
        return cls(bits, jnp.asarray(where.reshape(-1)))

    def cut(self, start: tuple, size: tuple[int, ...]) -> Array:
        """Bits of ``size``, batch first, from ``start`` on."""

        def one(i):
            return lax.dynamic_slice(self.bits, (i, *start[1:]), (1, *size[1:]))[0]

        return jax.vmap(one)(lax.dynamic_slice(self.where, start[:1], size[:1]))


def tile_by_tile(shape: Shape, k: int, dtype, compute: Callable[[list, Shape], Array]) -> Array:
    """``[B, M, N]`` of ``dtype`` from tiles ``compute(start, tile shape)``; the last overlap."""
    tile = _tile_shape(shape, k)
    counts = [-(-size // t) for size, t in zip(shape, tile, strict=True)]

    def add_tile(i, out):
        index = jnp.unravel_index(i, counts)
        start = [
            jnp.minimum(j * t, size - t) for j, t, size in zip(index, tile, shape, strict=True)
        ]
        return lax.dynamic_update_slice(out, compute(start, tile), start)

    return _f64.loop(math.prod(counts), add_tile, jnp.zeros(shape, dtype))


def _tile_shape(shape: Shape, k: int) -> Shape:
    """Tile extents; several batch elements share a tile only where each fits whole."""
    batch, m, n = shape
    rows = max(1, _PANEL_BYTES // max(k, 1))
    tile_n = min(n, rows, max(64, min(512, _TILE_OUTPUTS // m)))
    tile_m = min(m, rows, max(1, _TILE_OUTPUTS // tile_n))
    if (tile_m, tile_n) != (m, n):
        return 1, tile_m, tile_n
    return min(batch, max(1, min(_TILE_OUTPUTS // (m * n), rows // max(m, n)))), m, n
