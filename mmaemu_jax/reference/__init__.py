"""A second implementation in pure jax.numpy, independent of the C++ by method.

Float64 arithmetic in which every operation is exact, integer rounding, float32 as bit patterns:
see :mod:`mmaemu_jax.reference._f64` for the rule that keeps XLA from changing a bit.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from mmaemu_jax.accumulate import ONE_CHAIN, AccumulationPlan
from mmaemu_jax.formats import Fp8Format, format_of
from mmaemu_jax.instruction import InstructionModel
from mmaemu_jax.reference import _f64, accumulate, block_fma, epilogue

#: Outputs computed at once: small enough for the first-level cache, large enough to hide loops.
_TILE_OUTPUTS = 4096
#: Bound on the bytes of codes one tile unpacks.
_TILE_BYTES = 1 << 24


def gemm(
    a: Array,
    b: Array,
    scale_a: Array,
    scale_b: Array,
    scale_result: Array | None = None,
    c: Array | None = None,
    *,
    model: InstructionModel,
    plan: AccumulationPlan,
    out_dtype: DTypeLike,
) -> Array:
    """The GEMM of R3 to R19, in bounded memory; traceable inside jit with x64 off.

    Every operand has the same number of leading batch dimensions ``*L``, each of the size of the
    result's or 1.

    Args:
        a: float8 ``[*L, M, K]``, E4M3 or E5M2.
        b: float8 ``[*L, N, K]``, E4M3 or E5M2.
        scale_a, scale_b: float32 ``[*L]``.
        scale_result: float32 ``[*L]`` or None.
        c: float32 ``[*L, M, N]``, where a one-chain plan starts, or None for +0.
        model: the instruction's numbers.
        plan: the accumulation plan.
        out_dtype: one of the five output dtypes.

    Returns:
        ``[*B, M, N]`` in out_dtype. K = 0 without c is +0 everywhere (R15).

    Raises:
        BackendUnavailableError: float64 cannot hold this model's block sums exactly.
        ValueError: c with a plan of more than one chain.
    """
    block_fma.check_exact(model)
    if c is not None and plan != ONE_CHAIN:
        raise ValueError(f"reference.gemm: c needs the plan ONE_CHAIN, got {plan}.")
    out_dtype = np.dtype(out_dtype)
    operands = [x for x in (a, b, scale_a, scale_b, scale_result, c) if x is not None]
    batch_rank = a.ndim - 2
    batch = np.broadcast_shapes(*(x.shape[:batch_rank] for x in operands))
    shape = (*batch, a.shape[-2], b.shape[-2])
    if 0 in shape or (a.shape[-1] == 0 and c is None):
        return jnp.zeros(shape, out_dtype)
    with _f64.x64():
        flat = [None if x is None else _flatten(x, batch_rank, batch)
                for x in (a, b, scale_a, scale_b, scale_result, c)]
        bits = _tiled(flat, (format_of(a.dtype), format_of(b.dtype)), model, plan, out_dtype,
                      (math.prod(batch), *shape[-2:]))
        return lax.bitcast_convert_type(bits, out_dtype).reshape(shape)


def _flatten(x: Array, batch_rank: int, batch: tuple[int, ...]) -> tuple[Array, Array]:
    """Bits of ``x`` with one batch dimension, and for each batch element where it is there."""
    own = x.shape[:batch_rank]
    unsigned = jnp.uint8 if x.dtype.itemsize == 1 else jnp.uint32
    bits = lax.bitcast_convert_type(x, unsigned).reshape(math.prod(own), *x.shape[batch_rank:])
    where = np.broadcast_to(np.arange(math.prod(own)).reshape(own), batch)
    return bits, jnp.asarray(where.reshape(-1))


def _tiled(flat, formats: tuple[Fp8Format, Fp8Format], model, plan, out_dtype, shape) -> Array:
    """Output bits ``[B, M, N]``, tile by tile; the last tile of a row or column overlaps."""
    k = flat[0][0].shape[-1]
    tile = _tile_shape(shape, k)
    counts = [-(-size // t) for size, t in zip(shape, tile)]
    unsigned = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}[out_dtype.itemsize]

    def compute(i, out):
        index = jnp.unravel_index(i, counts)
        start = [jnp.minimum(j * t, size - t) for j, t, size in zip(index, tile, shape)]
        bits = _one_tile(flat, formats, model, plan, out_dtype, start, tile)
        return lax.dynamic_update_slice(out, bits, start)

    return _f64.loop(math.prod(counts), compute, jnp.zeros(shape, unsigned))


def _tile_shape(shape: tuple[int, int, int], k: int) -> tuple[int, int, int]:
    """Batch, row and column extent of a tile of outputs."""
    batch, m, n = shape
    rows = max(1, _TILE_BYTES // max(k, 1))
    tile_n = min(n, rows, max(64, min(512, _TILE_OUTPUTS // m)))
    tile_m = min(m, rows, max(1, _TILE_OUTPUTS // tile_n))
    if (tile_m, tile_n) != (m, n):
        return 1, tile_m, tile_n
    return min(batch, max(1, min(_TILE_OUTPUTS // (m * n), rows // (m + n)))), m, n


def _one_tile(flat, formats, model, plan, out_dtype, start, tile) -> Array:
    """Output bits of one tile."""
    (b0, m0, n0), (tb, tm, tn) = start, tile
    a, b, scale_a, scale_b, scale_result, c = (
        None if x is None else (x[0], lax.dynamic_slice(x[1], (b0,), (tb,))) for x in flat
    )
    a_codes, b_codes = _panel(a, m0, tm), _panel(b, n0, tn)
    c_value = jnp.zeros(tile, jnp.float64)
    if c is not None:
        cut = partial(lax.dynamic_slice, slice_sizes=(1, tm, tn))
        c_bits = jax.vmap(lambda i: cut(c[0], (i, m0, n0))[0])(c[1])
        c_value = _f64.f32_value(c_bits)
    acc = accumulate.run_plan(a_codes, b_codes, formats, c_value, model, plan)
    scales = (None if s is None else s[0][s[1]][:, None, None]
              for s in (scale_a, scale_b, scale_result))
    return epilogue.apply(acc, *scales, out_dtype)


def _panel(operand: tuple[Array, Array], row, rows: int) -> Array:
    """Codes ``[K, B, rows]`` of the selected batch elements, K leading."""
    codes, where = operand
    cut = partial(lax.dynamic_slice, slice_sizes=(1, rows, codes.shape[-1]))
    zero = jnp.zeros_like(row)
    panel = jax.vmap(lambda i: cut(codes, (i, row, zero))[0])(where)
    return jnp.transpose(panel, (2, 0, 1))
