"""GEMMs whose K is spread over devices: gathered, or contracted per device and then reduced (R24).

By default K is gathered, and bits do not depend on a mesh. What a data- or tensor-parallel job on
GPUs does is another computation: each device multiplies its slice of K, with a split-K decision and
an epilogue at that local shape, and the partial results are reduced. A :class:`Contraction` says
which of the two is wanted. Its devices are those of mesh axes, or parts of a virtual mesh: the same
bits on one device.
"""

import dataclasses
from typing import Literal, get_args

import jax
import numpy as np

from mmaemu_jax.arguments import (
    dtype_argument,
    is_one_of,
    unknown_option,
)
from mmaemu_jax.errors import message
from mmaemu_jax.reduction import REDUCE_DTYPES
from mmaemu_jax.slices_of_k import (
    Gemm,
    are_manual,
    axes_in_types,
    mapped,
    over_axes,
    over_parts,
    whole_k,
)

Mode = Literal["gather", "per_device", "error"]

_FLOAT32 = np.dtype(np.float32)
_WAYS_OUT_OF_ERROR = (
    "contraction='gather': whole K on every device, bits that do not depend on the mesh",
    "contraction='per_device': local GEMMs and a reduction, as a job on GPUs does",
)


@dataclasses.dataclass(frozen=True)
class Contraction:
    """How a GEMM is computed whose K is spread over devices.

    Attributes:
        mode: "gather": every device gets the whole K, one GEMM. "per_device": a GEMM of each
            device's slice of K, then ((p0 + p1) + p2) + ... in rank order. "error": refuse.
        axes: the mesh axes that K is spread over, major first as in a PartitionSpec; inside a
            shard_map over them the operands are the local slices.
        parts: a virtual mesh instead: K is cut into so many equal slices on this device.
        reduce_dtype: float32 or bfloat16; the partial results are rounded to it, and every sum.

    The order of a real reduction (NCCL's rings and trees) depends on its algorithm, the number of
    channels and the message size. It is not modelled: rank order is the definition.

    Raises:
        TypeError, ValueError: a field of the wrong type or value.
    """

    mode: Mode = "gather"
    axes: tuple[str, ...] = ()
    parts: int = 1
    reduce_dtype: np.dtype = _FLOAT32

    def __post_init__(self):
        if not is_one_of(self.mode, get_args(Mode)):
            raise unknown_option("Contraction", "mode", self.mode, get_args(Mode))
        axes = (self.axes,) if isinstance(self.axes, str) else self.axes
        if not isinstance(axes, tuple) or not all(isinstance(a, str) for a in axes):
            raise TypeError(f"Contraction: axes must be a tuple of axis names, got {axes!r}.")
        object.__setattr__(self, "axes", axes)
        if isinstance(self.parts, bool) or not isinstance(self.parts, int):
            raise TypeError(f"Contraction: parts must be an int, got {self.parts!r}.")
        if self.parts < 1 or (self.parts > 1 and axes):
            raise ValueError(
                message(
                    f"Contraction: parts must be positive, and 1 with axes, got parts = "
                    f"{self.parts} and axes = {axes!r}.",
                    ["axes for a mesh", "parts for a virtual mesh on one device"],
                )
            )
        dtype = dtype_argument("Contraction", "reduce_dtype", self.reduce_dtype)
        if dtype not in REDUCE_DTYPES:
            names = [d.name for d in REDUCE_DTYPES]
            raise unknown_option("Contraction", "reduce_dtype", dtype.name, names)
        object.__setattr__(self, "reduce_dtype", dtype)


ContractionArgument = Mode | Contraction


def contraction_argument(function: str, value: ContractionArgument) -> Contraction:
    """``value`` as a contraction: one, or the name of a mode."""
    if isinstance(value, Contraction):
        return value
    if not is_one_of(value, get_args(Mode)):
        way_out = "pass a mmaemu_jax.Contraction to name mesh axes or a virtual mesh"
        raise unknown_option(function, "contraction", value, get_args(Mode), way_out)
    return Contraction(value)


def contract(
    gemm: Gemm,
    a: jax.Array,
    b: jax.Array,
    *rest: jax.Array,
    contraction: ContractionArgument = "gather",
    function: str = "contract",
) -> jax.Array:
    """``gemm(a, b, *rest)``, contracted as ``contraction`` says.

    Without ``axes``, K counts as spread over the axes that the types of both operands name
    (explicit sharding). Shardings that the compiler chooses (auto axes) cannot be seen while
    tracing; the partitioner gathers them.

    Args:
        gemm: a ``(*L, M, k)``, b ``(*L, N, k)`` -> ``(*L, M, N)``. It is called on slices of K or
            on all of K, and what it decides by shape, it decides by that shape.
        a: ``(*L, M, K)``, or inside a shard_map over the contraction's axes this device's slice of
            K.
        b: ``(*L, N, K)``, likewise.
        rest: further operands of gemm, which the slices share: scales ``(*L)``.
        contraction: a mode or a :class:`Contraction`.
        function: the caller that messages name.

    Returns:
        What gemm returns; the same on every device that K was spread over.

    Raises:
        ValueError: mode "error" and a contraction that is spread; an axis that is not there or
            that an operand does not vary over; parts that do not divide K; FP8 partial results.
    """
    how = contraction_argument(function, contraction)
    if how.parts == 1:
        how = dataclasses.replace(
            how, axes=how.axes or axes_in_types([jax.typeof(a), jax.typeof(b)], [-1, -1])
        )
    if how.mode == "error" and (how.axes or how.parts > 1):
        over = f"mesh axes {how.axes}" if how.axes else f"a virtual mesh of {how.parts} parts"
        raise ValueError(message(f"{function}: K is spread over {over}.", _WAYS_OUT_OF_ERROR))
    reduce_dtype = how.reduce_dtype if how.mode == "per_device" else None
    if how.axes:
        local = over_axes(function, gemm, how.axes, reduce_dtype)
        if are_manual(how.axes):
            return local(a, b, *rest)
        if reduce_dtype is not None:
            return mapped(function, local, how.axes, a, b, rest)
        return gemm(whole_k(a), whole_k(b), *rest)
    if how.parts > 1 and reduce_dtype is not None:
        return over_parts(function, gemm, how.parts, reduce_dtype, a, b, rest)
    return gemm(a, b, *rest)
