"""A second implementation in pure jax.numpy, independent of the C++ by method.

Float64 arithmetic in which every operation is exact, integer rounding, float32 as bit patterns:
see :mod:`mmaemu_jax.reference._f64` for the rule that keeps XLA from changing a bit.
"""

import math

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from mmaemu_jax.accumulate import ONE_CHAIN, AccumulationPlan
from mmaemu_jax.formats import Fp8Format, format_of
from mmaemu_jax.instruction import InstructionModel
from mmaemu_jax.reference import _f64, accumulate, block_fma, epilogue
from mmaemu_jax.reference._tiles import Operand, Shape, tile_by_tile


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
        TypeError: a or b is neither E4M3 nor E5M2.
        ValueError: c with a plan of more than one chain.
    """
    block_fma.check_exact(model)
    if c is not None and plan != ONE_CHAIN:
        raise ValueError(f"reference.gemm: c needs the plan ONE_CHAIN, got {plan}.")
    formats = _format("a", a), _format("b", b)
    out_dtype = np.dtype(out_dtype)
    given = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b}
    given |= {"scale_result": scale_result, "c": c}
    present = {name: x for name, x in given.items() if x is not None}
    batch = np.broadcast_shapes(*(x.shape[: a.ndim - 2] for x in present.values()))
    m, n, k = a.shape[-2], b.shape[-2], a.shape[-1]
    shape = (*batch, m, n)
    if 0 in shape or (k == 0 and c is None):
        return jnp.zeros(shape, out_dtype)
    with _f64.x64():
        operands = {name: Operand.of(x, batch) for name, x in present.items()}
        bits = tile_by_tile(
            (math.prod(batch), m, n),
            k,
            np.dtype(f"uint{8 * out_dtype.itemsize}"),
            lambda start, tile: _tile_bits(operands, formats, model, plan, out_dtype, start, tile),
        )
        return lax.bitcast_convert_type(bits, out_dtype).reshape(shape)


def _tile_bits(
    operands: dict[str, Operand],
    formats: tuple[Fp8Format, Fp8Format],
    model: InstructionModel,
    plan: AccumulationPlan,
    out_dtype: np.dtype,
    start: list,
    tile: Shape,
) -> Array:
    """Output bits of one tile."""
    (first, row, column), (batch, rows, columns) = start, tile

    def panel(name, first_row, size):
        operand = operands[name]
        k = operand.bits.shape[-1]
        codes = operand.cut((first, first_row, jnp.zeros_like(first)), (batch, size, k))
        return jnp.transpose(codes, (2, 0, 1))

    c = jnp.zeros(tile, jnp.float64)
    if "c" in operands:
        c = _f64.f32_value(operands["c"].cut((first, row, column), tile))
    a, b = panel("a", row, rows), panel("b", column, columns)
    acc = accumulate.run_plan(a, b, formats, c, model, plan)
    scales = {
        name: x.cut((first,), (batch,))[:, None, None]
        for name, x in operands.items()
        if name.startswith("scale")
    }
    return epilogue.apply(acc, out_dtype=out_dtype, **scales)


def _format(name: str, x: Array) -> Fp8Format:
    fmt = format_of(x.dtype)
    if fmt is None:
        raise TypeError(f"reference.gemm: {name} must be E4M3 or E5M2, got {x.dtype.name}.")
    return fmt
