"""GEMMs whose K is spread over devices: gathered, or contracted per device and then reduced (R24).

By default K is gathered, and bits do not depend on a mesh. What a data- or tensor-parallel job on
GPUs does is another computation: each device multiplies its slice of K, with a split-K decision and
an epilogue at that local shape, and the partial results are reduced. A :class:`Contraction` says
which of the two is wanted. Its devices are those of mesh axes, or parts of a virtual mesh: the same
bits on one device.
"""

import dataclasses
from collections.abc import Callable
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from mmaemu_jax import primitive
from mmaemu_jax.arguments import (
    dtype_argument,
    flag_argument,
    output_dtype_argument,
    unknown_option,
)
from mmaemu_jax.backends import check_backend
from mmaemu_jax.dimensions import batch_names, operand_names, result_names
from mmaemu_jax.errors import message
from mmaemu_jax.formats import format_of
from mmaemu_jax.notices import issue
from mmaemu_jax.operands import fp8_operand
from mmaemu_jax.plan import plan_gemm
from mmaemu_jax.platforms import Profile, SplitArgument, SplitQuery, parse_splitk, profile_argument
from mmaemu_jax.reduction import REDUCE_DTYPES, sum_in_order
from mmaemu_jax.sharding_type import result_sharding

Mode = Literal["gather", "per_device", "error"]
Gemm = Callable[..., jax.Array]

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
        if self.mode not in get_args(Mode):
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
    if value not in get_args(Mode):
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
        gemm: a (*L, M, k), b (*L, N, k) -> (*L, M, N). It is called on slices of K or on all of K,
            and what it decides by shape, it decides by that shape.
        a: (*L, M, K), or inside a shard_map over the contraction's axes this device's slice of K.
        b: (*L, N, K), likewise.
        rest: further operands of gemm, which the slices share: scales (*L).
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
        how = dataclasses.replace(how, axes=how.axes or _axes_in_types(a, b))
    if how.mode == "error" and (how.axes or how.parts > 1):
        over = f"mesh axes {how.axes}" if how.axes else f"a virtual mesh of {how.parts} parts"
        raise ValueError(message(f"{function}: K is spread over {over}.", _WAYS_OUT_OF_ERROR))
    if how.parts > 1:
        whole = how.mode == "gather"
        return gemm(a, b, *rest) if whole else _over_parts(function, gemm, a, b, rest, how)
    if not how.axes:
        return gemm(a, b, *rest)
    local = _over_axes(function, gemm, how)
    if _are_manual(how.axes):
        return local(a, b, *rest)
    return _mapped(function, local, how, a, b, rest)


def _axes_in_types(a, b) -> tuple[str, ...]:
    """The mesh axes over which the types of both operands spread K."""
    per_operand = []
    for x in (a, b):
        entry = tuple(jax.typeof(x).sharding.spec)[-1:]
        axes = entry[0] if entry else None
        per_operand.append((axes,) if isinstance(axes, str) else axes)
    return per_operand[0] if all(per_operand) else ()


def _are_manual(axes: tuple[str, ...]) -> bool:
    """Whether this is inside a shard_map (or a vmap that names its axis) over ``axes``."""
    try:
        for axis in axes:
            lax.axis_size(axis)
    except NameError:
        return False
    return True


def _mapped(function: str, local: Gemm, how: Contraction, a, b, rest) -> jax.Array:
    """``local`` in a shard_map of its own on the mesh in force."""
    mesh = jax.sharding.get_abstract_mesh()
    if not set(how.axes) <= set(mesh.axis_names):
        raise ValueError(
            message(
                f"{function}: contraction axes {how.axes} are not axes of a mesh in force (its "
                f"axes are {tuple(mesh.axis_names)}).",
                [
                    "call it inside jax.shard_map over these axes",
                    "with jax.set_mesh(mesh)",
                    "parts=n for a virtual mesh on one device",
                ],
            )
        )
    explicit = all(kind == AxisType.Explicit for kind in mesh.axis_types)
    if explicit:
        in_specs = tuple(jax.typeof(x).sharding.spec for x in (a, b, *rest))
        out_specs = _result_spec(a, b, rest)
    else:
        of_k = [PartitionSpec(*[None] * (x.ndim - 1), how.axes) for x in (a, b)]
        in_specs = (*of_k, *[PartitionSpec()] * len(rest))
        out_specs = PartitionSpec()
    axes = set(mesh.axis_names) if explicit else set(how.axes)
    mapped = jax.shard_map(local, in_specs=in_specs, out_specs=out_specs, axis_names=axes)
    return mapped(a, b, *rest)


def _result_spec(a, b, rest) -> PartitionSpec:
    """How the result is sharded by the types of the operands, once K is reduced."""
    leading = a.ndim - 2
    names = operand_names(leading, "nk", False, False)[:2]
    avals = [jax.typeof(x) for x in (a, b, *rest)]
    for i in (0, 1):
        spec = PartitionSpec(*tuple(avals[i].sharding.spec)[:-1], None)
        avals[i] = avals[i].update(sharding=NamedSharding(avals[i].sharding.mesh, spec))
    names = (*names, *[batch_names(leading)] * len(rest))
    return result_sharding(avals, names, result_names(leading)).spec


def _over_axes(function: str, gemm: Gemm, how: Contraction) -> Gemm:
    """``gemm`` inside a shard_map, on operands that are this device's slices of K."""

    def local(a, b, *rest):
        _check_varying(function, how.axes, a, b)
        if how.mode == "gather":
            whole = (_gathered(x, how.axes, axis=x.ndim - 1) for x in (a, b))
            return gemm(*whole, *rest)
        partial = gemm(a, b, *rest)
        _check_reducible(function, partial)
        every = _gathered(partial[None], how.axes, axis=0)
        return sum_in_order([every[i] for i in range(every.shape[0])], how.reduce_dtype)

    return local


def _over_parts(function: str, gemm: Gemm, a, b, rest, how: Contraction) -> jax.Array:
    k = a.shape[-1]
    if k % how.parts:
        raise ValueError(
            message(
                f"{function}: the parts of a virtual mesh must divide K, got K = {k} and "
                f"{how.parts} parts.",
                ["another number of parts", "pad K with zeros"],
            )
        )
    own = k // how.parts
    slices = [slice(i * own, (i + 1) * own) for i in range(how.parts)]
    partials = [gemm(a[..., s], b[..., s], *rest) for s in slices]
    _check_reducible(function, partials[0])
    return sum_in_order(partials, how.reduce_dtype)


def _gathered(x: jax.Array, axes: tuple[str, ...], *, axis: int) -> jax.Array:
    """Every device's x, concatenated in rank order along ``axis``, on every device."""
    # As integers: XLA may rewrite the NaN of floats that it copies.
    bits = lax.bitcast_convert_type(x, np.dtype(f"uint{8 * x.dtype.itemsize}"))
    every = lax.all_gather(bits, axes, axis=axis, tiled=True, to="invarying")
    return lax.bitcast_convert_type(every, x.dtype)


def _check_varying(function: str, axes: tuple[str, ...], a, b) -> None:
    """Refuses an operand that is the same on every device of an axis, where types tell."""
    for axis in axes:
        if axis not in jax.typeof(lax.axis_index(axis)).manual_axis_type.varying:
            continue  # a shard_map with check_vma=False, whose types do not tell
        for name, x in (("a", a), ("b", b)):
            if axis not in jax.typeof(x).manual_axis_type.varying:
                raise ValueError(
                    message(
                        f"{function}: K is not spread over mesh axis {axis!r}: {name} is the same "
                        "on all of its devices.",
                        [
                            "leave the axis out of the contraction's axes",
                            f"spread K of {name} over it by the in_specs of the shard_map",
                        ],
                    )
                )


def _check_reducible(function: str, partial: jax.Array) -> None:
    if format_of(partial.dtype) is not None:
        raise ValueError(
            message(
                f"{function}: partial results in {partial.dtype.name} cannot be reduced.",
                ["an output of bfloat16, float16 or float32, quantised after the reduction"],
            )
        )


def contracted_gemm(
    a,
    b,
    scale_a,
    scale_b,
    scale_result=None,
    *,
    out_dtype,
    use_fast_accum: bool,
    profile: str | Profile | None = None,
    splitk: SplitArgument = "auto",
    backend: str = "auto",
    contraction: ContractionArgument = "gather",
    function: str = "contracted_gemm",
) -> jax.Array:
    """An FP8 GEMM ``a @ b.T`` with scales (R16 to R18), contracted as ``contraction`` says.

    Split-K is decided at the shape of each GEMM that is computed: with "per_device" that of a
    slice, whose epilogue gives out_dtype before the reduction. Shapes are not restricted to
    multiples of 16 (R22).

    Args:
        a: FP8 (*L, M, K).
        b: FP8 (*L, N, K); leading dimensions are 1 or those of a.
        scale_a, scale_b, scale_result: float32 (*L), each dimension 1 or that of the result;
            scale_result is for FP8 outputs, or None.
        out_dtype: one of the five output dtypes (R18).
        use_fast_accum, profile, splitk, backend: as in scaled_mm.
        contraction: a mode or a :class:`Contraction`.
        function: the caller that messages name.

    Returns:
        (*L, M, N) in out_dtype.

    Raises:
        TypeError, ValueError: operands, shapes or options that do not fit; see :func:`contract`.
        UnsupportedFeatureError, SplitKUnknownError, BackendUnavailableError: as scaled_mm.
    """
    _, format_a = fp8_operand(function, "a", a)
    _, format_b = fp8_operand(function, "b", b)
    dtype = output_dtype_argument(function, "out_dtype", out_dtype)
    fast = flag_argument(function, "use_fast_accum", use_fast_accum)
    platform = profile_argument(function, profile)
    request = parse_splitk(function, splitk, platform)
    check_backend(function, backend)
    rest = [x for x in (scale_a, scale_b, scale_result) if x is not None]

    def gemm(a, b, *scales):
        query = SplitQuery(
            function,
            a.shape[-2],
            b.shape[-2],
            a.shape[-1],
            format_a,
            format_b,
            dtype,
            fast,
            platform,
            request,
            to_scaled_fp8=scale_result is not None and format_of(dtype) is not None,
        )
        plan = plan_gemm(query)
        issue(plan.notices)
        return primitive.bind(
            a,
            b,
            *scales,
            model=plan.model,
            plan=plan.accumulation,
            out_dtype=dtype,
            b_layout="nk",
            backend=backend,
        )

    arrays = map(jnp.asarray, (a, b, *rest))
    return contract(gemm, *arrays, contraction=contraction, function=function)
