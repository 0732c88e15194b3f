"""Partitioning of a GEMM under jit: M, N and the batch without collectives, K gathered (R24).

The rule enters a program only where that is lowered for several devices, below vmap, shard_map and
the refusal of derivatives, so that all of these see nothing but the primitive.
"""

import hashlib
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.core import ShapedArray
from jax.experimental.custom_partitioning import (
    ArrayMapping,
    SdyShardingRule,
    custom_partitioning,
)
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jax.sharding import NamedSharding, PartitionSpec

from mmaemu_jax.dimensions import Names, sizes_by_name

try:
    from jax._src.dispatch import prim_requires_devices_during_lowering
except ImportError:
    prim_requires_devices_during_lowering = None


def request_devices(primitive: Primitive) -> None:
    """Lets JAX name the mesh and its devices to the lowering of ``primitive``.

    JAX has no public way to ask for that. Where a release does not have the private one either, the
    mesh is unknown and programs are not partitioned: slower on several devices, the same bits.
    """
    if prim_requires_devices_during_lowering is not None:
        prim_requires_devices_during_lowering.add(primitive)


def is_partitioned(ctx: mlir.LoweringRuleContext) -> bool:
    """Whether the rule enters the program: it is for several devices and the compiler cuts it.

    Not inside a shard_map, over all axes or over some (there the compiler cannot take a rule, and
    gathers over the others), nor in an exported program, since a rule is a Python object.
    """
    module = ctx.module_context
    context = module.axis_context
    return (
        isinstance(context, mlir.ShardingContext)
        and context.num_devices > 1
        and context.abstract_mesh is not None
        and not module.lowering_parameters.for_export
        and getattr(jax.config, "jax_use_shardy_partitioner", True)
    )


def lower_partitioned(
    ctx: mlir.LoweringRuleContext,
    operands: Sequence[mlir.ir.Value],
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[np.dtype],
    names: tuple[Names, ...],
    result_names: Names,
    compute: Callable[..., jax.Array],
    identity: str,
):
    """Lowers ``compute`` of ``operands``, to run on each device's part of them.

    Args:
        shapes, dtypes, names: of each operand.
        compute: the GEMM, of whole operands and of parts alike.
        identity: what tells ``compute`` from any other, the same in every process.
    """
    # The program itself names the rule by its address. JAX can leave addresses out of the keys of
    # its persistent cache; this constant then keeps programs of different GEMMs apart.
    digest = np.frombuffer(hashlib.sha256(identity.encode()).digest(), np.uint32)

    def of_parts(identity, *parts):
        return compute(*parts)

    names = (("identity",), *_cut_names(shapes, names))
    partitioned = _with_rule(of_parts, names, result_names)
    avals = [ShapedArray(s, d) for s, d in zip(shapes, dtypes, strict=True)]
    rule = mlir.lower_fun(lambda *x: partitioned(digest, *x), multiple_results=False)
    return rule(ctx.replace(avals_in=avals), *operands)


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
