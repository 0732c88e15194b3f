"""Chains, chunks, splits and their combination (R9 to R13), interpreted from the plan's numbers."""

from functools import partial

import jax.numpy as jnp
from jax import Array

from mmaemu_jax.accumulate import AccumulationPlan
from mmaemu_jax.formats import Fp8Format
from mmaemu_jax.instruction import InstructionModel
from mmaemu_jax.reference import _f64, block_fma


def run_plan(
    a: Array,
    b: Array,
    formats: tuple[Fp8Format, Fp8Format],
    c: Array,
    model: InstructionModel,
    plan: AccumulationPlan,
) -> Array:
    """The accumulators of one tile of outputs, as float64 ``[B, M, N]`` holding float32 values.

    Args:
        a: uint8 codes ``[K, B, M]``.
        b: uint8 codes ``[K, B, N]``.
        formats: what the codes of a and b mean.
        c: float64 ``[B, M, N]``, where a one-chain plan starts; +0 for every other plan.
        model: the instruction's numbers.
        plan: the accumulation plan.
    """
    if a.shape[0] == 0:
        return c
    run_chain = partial(_chain, a, b, formats, model, plan)
    split = partial(_split, run_chain, plan, a.shape[0])
    zero = jnp.zeros_like(c)
    if plan.splits == 1:
        return split(0, c)
    if not plan.pairwise:
        return _f64.loop(plan.splits, lambda s, t: _f64.add_f32(t, split(s, zero)), zero)
    parts = _f64.loop(
        plan.splits,
        lambda s, parts: parts.at[s].set(split(s, zero)),
        jnp.zeros((plan.splits, *c.shape)),
    )
    return _add_pairwise(parts)


def _split(run_chain, plan: AccumulationPlan, k: int, s, c: Array) -> Array:
    """The partial sum of split ``s``: one chain from c, or chunks added serially from +0."""
    own = _own_elements(plan, k, s)
    if not plan.chunk_k:
        return run_chain(s, 0, own, c)
    zero = jnp.zeros_like(c)

    def add_chunk(j, total):
        stop = jnp.minimum((j + 1) * plan.chunk_k, own)
        return _f64.add_f32(total, run_chain(s, j * plan.chunk_k, stop, zero))

    return _f64.loop(_ceil_div(own, plan.chunk_k), add_chunk, zero)


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

    return _f64.loop(_ceil_div(stop - start, model.nfma), step, c)


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


def _add_pairwise(parts: Array) -> Array:
    """The split sums ``[S, B, M, N]`` in the order of R12 "pairwise"."""
    last = parts.shape[0] - 1
    half = _ceil_div(parts.shape[0], 2)
    paired = last - half
    slots = _f64.add_f32(parts[:paired], parts[half:last])
    order = jnp.concatenate([parts[last:], slots, parts[paired:half]])
    return _f64.loop(half, lambda i, total: _f64.add_f32(total, order[i + 1]), order[0])


def _ceil_div(x, y):
    return -(-x // y)
