"""gemm_cost: operations and bytes of an FP8 GEMM, which XLA's cost analysis does not know."""

import dataclasses

from mmaemu_jax.arguments import format_argument, output_dtype_argument

_FUNCTION = "gemm_cost"


@dataclasses.dataclass(frozen=True)
class GemmCost:
    """What a GEMM amounts to, whoever computes it.

    Attributes:
        flops: 2 per multiply-add, as XLA counts a dot.
        macs: multiply-adds.
        bytes: operands read once and outputs written once; scales (8 bytes) are left out.
    """

    flops: int
    macs: int
    bytes: int


def gemm_cost(m: int, n: int, k: int, *, a_dtype, b_dtype, out_dtype, batch: int = 1) -> GemmCost:
    """Operations and bytes of ``batch`` GEMMs [m, k] x [k, n] -> [m, n].

    ``Compiled.cost_analysis()`` reports -1 for a custom call, which is what ``scaled_mm`` compiles
    to, and adds it to the totals; add these figures instead.

    Args:
        m, n, k: dimensions; zero is allowed.
        a_dtype, b_dtype: FP8 dtypes or their names, such as "e4m3".
        out_dtype: one of the five output dtypes (R18).
        batch: number of GEMMs, each with operands of its own.

    Raises:
        TypeError: a dimension that is not an int, operands that are not FP8.
        ValueError: a negative dimension, an output dtype that is none of the five.
    """
    m, n, k, batch = (
        _dimension(name, value) for name, value in (("m", m), ("n", n), ("k", k), ("batch", batch))
    )
    a = format_argument(_FUNCTION, "a_dtype", a_dtype).dtype
    b = format_argument(_FUNCTION, "b_dtype", b_dtype).dtype
    out = output_dtype_argument(_FUNCTION, "out_dtype", out_dtype)
    macs = batch * m * n * k
    moved = batch * (m * k * a.itemsize + n * k * b.itemsize + m * n * out.itemsize)
    return GemmCost(2 * macs, macs, moved)


def _dimension(name: str, value) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{_FUNCTION}: {name} must be an int, got {value!r}.")
    if value < 0:
        raise ValueError(f"{_FUNCTION}: {name} must not be negative, got {value}.")
    return value
