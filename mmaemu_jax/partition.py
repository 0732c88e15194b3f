"""Partitioning of a GEMM under jit: M, N and the batch without collectives, K gathered (R24).

The rule enters a program only where that is lowered for several devices, below vmap, shard_map and
the refusal of derivatives, so that all of these see nothing but the primitive.
"""

from collections.abc import Callable, Sequence

import jax
from jax.core import ShapedArray
from jax.experimental.custom_partitioning import (
    ArrayMapping,
    SdyShardingRule,
    custom_partitioning,
)
from jax.interpreters import mlir
from jax.sharding import NamedSharding, PartitionSpec

from mmaemu_jax.dimensions import Names, sizes_by_name


def is_partitioned(ctx: mlir.LoweringRuleContext) -> bool:
    """Whether the compiler will cut the program into parts here.

    Not on one device, nor inside a shard_map over every axis. An exported program keeps the plain
    call: the partitioning rule is a Python object, which a file cannot hold.
    """
    module = ctx.module_context
    if module.lowering_parameters.for_export or not jax.config.jax_use_shardy_partitioner:
        return False
    context = module.axis_context
    if isinstance(context, mlir.SPMDAxisContext):
        free = set(context.mesh.axis_names) - set(context.manual_axes)
        return any(context.mesh.shape[axis] > 1 for axis in free)
    if isinstance(context, mlir.ShardingContext):
        return context.num_devices > 1 and context.abstract_mesh is not None
    return False


def lower_partitioned(
    ctx: mlir.LoweringRuleContext,
    operands: Sequence[mlir.ir.Value],
    shapes: Sequence[tuple[int, ...]],
    names: tuple[Names, ...],
    result_names: Names,
    compute: Callable[..., jax.Array],
):
    """Lowers ``compute`` of ``operands``, to run on each device's part of them.

    Args:
        shapes, names: of each operand, whose dtypes are those of ``ctx``.
        compute: the GEMM, of whole operands and of parts alike.
    """
    avals = [ShapedArray(s, x.dtype) for s, x in zip(shapes, ctx.avals_in, strict=True)]
    partitioned = _with_rule(compute, _cut_names(shapes, names), result_names)
    context = ctx.module_context.axis_context
    if isinstance(context, mlir.SPMDAxisContext):
        mesh = context.mesh
        context = mlir.ShardingContext(mesh.size, tuple(mesh.devices.flat), mesh.abstract_mesh)
    module = ctx.module_context.replace(axis_context=context)
    rule = mlir.lower_fun(partitioned, multiple_results=False)
    return rule(ctx.replace(avals_in=avals, module_context=module), *operands)


def _cut_names(shapes, names: tuple[Names, ...]) -> tuple[Names, ...]:
    """``names`` with one of its own for a 1 where others hold the batch: it is never cut."""
    sizes = sizes_by_name(shapes, names)
    assert sizes is not None
    return tuple(
        tuple(
            name if size == sizes[name] else f"one{i}_{j}"
            for j, (size, name) in enumerate(zip(shape, own, strict=True))
        )
        for i, (shape, own) in enumerate(zip(shapes, names, strict=True))
    )


def _with_rule(compute, names: tuple[Names, ...], result_names: Names):
    """``compute`` with its rule: what is not a dimension of the result is whole on every device."""

    def partition(mesh, arguments, result):
        """The parts of the operands that one part of the result needs."""
        axes = dict(zip(result_names, result.sharding.spec, strict=True))
        specs = [PartitionSpec(*(axes.get(name) for name in own)) for own in names]
        return mesh, compute, result.sharding, tuple(NamedSharding(mesh, s) for s in specs)

    whole = {name: None for own in names for name in own if name not in result_names}
    rule = SdyShardingRule(
        tuple(ArrayMapping(*own) for own in names),
        (ArrayMapping(*result_names),),
        need_replication_factors=tuple(whole),
    )
    partitioned = custom_partitioning(compute)
    partitioned.def_partition(partition=partition, sharding_rule=rule)
    return partitioned
