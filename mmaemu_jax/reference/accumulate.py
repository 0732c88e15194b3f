"""Chains, chunks, splits and their combination (R9 to R13), interpreted from the plan's numbers."""

from functools import partial

import jax.numpy as jnp
from jax import Array, lax

from mmaemu_jax.accumulate import AccumulationPlan
from mmaemu_jax.formats import Fp8Format
from mmaemu_jax.instruction import InstructionModel
from mmaemu_jax.reference import _f64, block_fma


def accumulate(
    a: Array,
    b: Array,
    formats: tuple[Fp8Format, Fp8Format],
    c: Array,
    model: InstructionModel,
    plan: AccumulationPlan,
) -> Array:
    """The accumulators of one tile of outputs, as float64 ``[B, M, N]`` holding float32 values.

    Args:
        a: uint8 codes ``[K, B, M]``; non-finite ones count as +0 (R14).
        b: uint8 codes ``[K, B, N]``.
        formats: what the codes of a and b mean.
        c: float64 ``[B, M, N]``, where a one-chain plan starts; +0 for every other plan.
        model: the instruction's numbers.
        plan: the accumulation plan.
    """
    run_chain = partial(_chain, a, b, formats, model, plan)
    if plan.splits == 1:
        return _split(run_chain, plan, a.shape[0], 0, c)
    parts = lax.map(
        lambda s: _split(run_chain, plan, a.shape[0], s, c), jnp.arange(plan.splits)
    )
    return _combine(parts, plan.pairwise)


def _split(run_chain, plan: AccumulationPlan, k: int, s, c: Array) -> Array:
    """The partial sum of split ``s``: one chain from c, or chunks added serially from +0."""
    own = _own_elements(plan, k, s)
    if not plan.chunk_k:
        return run_chain(s, 0, own, c)
    zero = jnp.zeros_like(c)

    def add_chunk(j, total):
        stop = jnp.minimum((j + 1) * plan.chunk_k, own)
        return _f64.add_f32(total, run_chain(s, j * plan.chunk_k, stop, zero))

    return lax.fori_loop(0, _ceil_div(own, plan.chunk_k), add_chunk, zero)


def _chain(
    a: Array,
    b: Array,
    formats: tuple[Fp8Format, Fp8Format],
    model: InstructionModel,
    plan: AccumulationPlan,
    s,
    start,
    stop,
    c: Array,
) -> Array:
    """One chain over split ``s``'s own elements start..stop-1, from ``c`` (R9)."""
    k = a.shape[0]

    def step(i, c):
        own = start + i * model.nfma + jnp.arange(model.nfma)
        index = _global_k(plan, k, s, own)
        real = (own < stop) & (index < k)
        index = jnp.where(real, index, 0)

        def block(codes, fmt):
            padded = jnp.where(real[:, None, None], codes[index], 0)
            return block_fma.decode(padded, fmt)

        return block_fma.block_step(block(a, formats[0]), block(b, formats[1]), c, model)

    return lax.fori_loop(0, _ceil_div(stop - start, model.nfma), step, c)


def _own_elements(plan: AccumulationPlan, k: int, s):
    """How many elements split ``s`` owns, tile padding included (R12, R13)."""
    if plan.splits == 1:
        return k
    tiles = _ceil_div(k, plan.tile_k)
    if plan.interleaved:
        own_tiles = _ceil_div(tiles - s, plan.splits)
    else:
        per_split = _ceil_div(tiles, plan.splits)
        own_tiles = jnp.minimum(tiles - s * per_split, per_split)
    return jnp.maximum(own_tiles, 0) * plan.tile_k


def _global_k(plan: AccumulationPlan, k: int, s, own: Array) -> Array:
    """Where in K the own elements ``own`` of split ``s`` are (R12, R13)."""
    if plan.splits == 1:
        return own
    own_tile, offset = own // plan.tile_k, own % plan.tile_k
    if plan.interleaved:
        tile = s + own_tile * plan.splits
    else:
        tile = s * _ceil_div(_ceil_div(k, plan.tile_k), plan.splits) + own_tile
    return tile * plan.tile_k + offset


def _combine(parts: Array, pairwise: bool) -> Array:
    """Add the split sums ``[S, B, M, N]`` in the order of R12 or R13; no part is -0 (R7)."""
    if pairwise:
        last = parts.shape[0] - 1
        half = _ceil_div(parts.shape[0], 2)
        paired = last - half
        slots = _f64.add_f32(parts[:paired], parts[half:last])
        parts = jnp.concatenate([parts[last:], slots, parts[paired:half]])
    return lax.fori_loop(
        1, parts.shape[0], lambda i, total: _f64.add_f32(total, parts[i]), parts[0]
    )


def _ceil_div(x, y):
    return -(-x // y)
