"""A GEMM on slices of K: those of a shard_map's devices, or those of a virtual mesh."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from mmaemu_jax.dimensions import batch_names, operand_names, result_names
from mmaemu_jax.errors import message
from mmaemu_jax.formats import format_of
from mmaemu_jax.reduction import sum_in_order
from mmaemu_jax.sharding_type import axis_names, result_sharding

#: (a (*L, M, k), b (*L, N, k), scales (*L) ...) -> (*L, M, N)
Gemm = Callable[..., jax.Array]


def axes_in_types(types: Sequence[ShapedArray], dims: Sequence[int]) -> tuple[str, ...]:
    """The mesh axes over which the types of both operands spread K, their dimensions ``dims``."""
    of_each = [axis_names(t.sharding.spec[dim]) for t, dim in zip(types, dims, strict=True)]
    return of_each[0] if all(of_each) else ()


def whole_k(x: jax.Array) -> jax.Array:
    """``x`` (..., K) with a type that does not spread K."""
    spec = jax.typeof(x).sharding.spec
    if tuple(spec)[-1:] == (None,):
        return x
    return jax.sharding.reshard(x, PartitionSpec(*tuple(spec)[:-1], None))


def are_manual(axes: tuple[str, ...]) -> bool:
    """Whether this is inside a shard_map (or a vmap that names its axis) over ``axes``."""
    try:
        for axis in axes:
            lax.axis_size(axis)
    except NameError:
        return False
    return True


def mapped(function: str, local: Gemm, axes: tuple[str, ...], a, b, rest) -> jax.Array:
    """``local`` in a shard_map of its own, of the mesh in force.

    Where types carry shardings, it is over all axes of the mesh, and every operand stays as its
    type says. Otherwise it is over ``axes``, and the compiler sees to the others.

    Raises:
        ValueError: ``axes`` are not axes of the mesh in force, or not those of the types.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if not set(axes) <= set(mesh.axis_names):
        raise ValueError(
            message(
                f"{function}: contraction axes {axes} are not axes of a mesh in force (its "
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
        _check_spread_alike(function, axes, a, b)
        in_specs = tuple(jax.typeof(x).sharding.spec for x in (a, b, *rest))
        out_specs = _result_spec(a, b, rest)
    else:
        of_k = [PartitionSpec(*[None] * (x.ndim - 1), axes) for x in (a, b)]
        in_specs = (*of_k, *[PartitionSpec()] * len(rest))
        out_specs = PartitionSpec()
    manual = set(mesh.axis_names) if explicit else set(axes)
    function_of_parts = jax.shard_map(
        local, in_specs=in_specs, out_specs=out_specs, axis_names=manual
    )
    return function_of_parts(a, b, *rest)


def _check_spread_alike(function: str, axes: tuple[str, ...], a, b) -> None:
    """Refuses operands whose types give a device other slices of K than the contraction does."""
    of_a, of_b = (axis_names(jax.typeof(x).sharding.spec[-1]) for x in (a, b))
    if not axes == of_a == of_b:
        raise ValueError(
            message(
                f"{function}: the contraction is over mesh axes {axes}, but types spread K of a "
                f"over {of_a} and K of b over {of_b}.",
                [
                    "jax.sharding.reshard an operand, so that both spread K alike",
                    "leave the contraction's axes out, or name these in this order",
                ],
            )
        )


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


def over_axes(
    function: str, gemm: Gemm, axes: tuple[str, ...], reduce_dtype: np.dtype | None
) -> Gemm:
    """``gemm`` inside a shard_map over ``axes``, on operands that are this device's slices of K.

    K is gathered, or with a ``reduce_dtype`` the partial results of every device are reduced.

    Raises (when called):
        ValueError: an operand is the same on every device of an axis; FP8 partial results.
    """

    def local(a, b, *rest):
        _check_varying(function, axes, a, b)
        if reduce_dtype is None:
            whole = (_gathered(x, axes, axis=x.ndim - 1) for x in (a, b))
            return gemm(*whole, *rest)
        partial = gemm(a, b, *rest)
        _check_reducible(function, partial)
        every = _gathered(partial[None], axes, axis=0)
        return sum_in_order(every, reduce_dtype)

    return local


def over_parts(
    function: str, gemm: Gemm, parts: int, reduce_dtype: np.dtype, a, b, rest
) -> jax.Array:
    """``gemm`` of every slice of K on this device, reduced as ``parts`` devices would.

    Raises:
        ValueError: the parts do not divide K; FP8 partial results.
    """
    k = a.shape[-1]
    if k % parts:
        raise ValueError(
            message(
                f"{function}: the parts of a virtual mesh must divide K, got K = {k} and "
                f"{parts} parts.",
                ["another number of parts", "pad K with zeros"],
            )
        )
    own = k // parts
    slices = [slice(i * own, (i + 1) * own) for i in range(parts)]
    partials = [gemm(a[..., s], b[..., s], *rest) for s in slices]
    _check_reducible(function, partials[0])
    every = lax.bitcast_convert_type(jnp.stack([_bits(p) for p in partials]), partials[0].dtype)
    return sum_in_order(every, reduce_dtype)


def _bits(x: jax.Array) -> jax.Array:
    """``x`` as integers: XLA may rewrite the NaN of floats that it copies."""
    return lax.bitcast_convert_type(x, np.dtype(f"uint{8 * x.dtype.itemsize}"))


def _gathered(x: jax.Array, axes: tuple[str, ...], *, axis: int) -> jax.Array:
    """Every device's x, concatenated in rank order along ``axis``, on every device."""
    to = "invarying" if all(map(_types_tell, axes)) else "varying"
    every = lax.all_gather(_bits(x), axes, axis=axis, tiled=True, to=to)
    return lax.bitcast_convert_type(every, x.dtype)


def _types_tell(axis: str) -> bool:
    """Whether types say what varies over ``axis``: not under vmap, nor with check_vma=False."""
    return axis in jax.typeof(lax.axis_index(axis)).manual_axis_type.varying


def _check_varying(function: str, axes: tuple[str, ...], a, b) -> None:
    """Refuses an operand that is the same on every device of an axis, where types tell."""
    for axis in axes:
        if not _types_tell(axis):
            continue
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
