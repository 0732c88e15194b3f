"""The result's sharding where types carry shardings (explicit mesh axes), as jnp.dot has it."""

from collections.abc import Sequence

from jax.core import ShapedArray
from jax.sharding import NamedSharding, PartitionSpec

from mmaemu_jax.dimensions import Names
from mmaemu_jax.errors import message

_FUNCTION = "mmaemu_scaled_mm"
_RESHARD = "jax.sharding.reshard(x, jax.P(...)) before the call"
_AUTO = "jax.sharding.auto_axes(f, out_sharding=...) around it, where the compiler gathers"


def result_sharding(
    operands: Sequence[ShapedArray], names: tuple[Names, ...], result_names: Names
) -> NamedSharding:
    """M, N and batch dimensions are sharded as on the operands; K is gathered (R24).

    Raises:
        TypeError: K is sharded on both of a and b (gather it, or ask for a contraction per device);
            two operands disagree; two dimensions of the result share a mesh axis; an operand is
            unreduced.
    """
    mesh = _common_mesh(operands)
    axes: dict[str, object] = {}
    for operand, own in zip(operands, names, strict=True):
        spec = operand.sharding.spec
        if spec.unreduced:
            raise _error(f"an operand is not reduced over {sorted(spec.unreduced)}", _RESHARD)
        for name, entry in zip(own, spec, strict=False):
            known = axes.get(name)
            if name == "k" and known is not None and entry is not None:
                raise _contracted(known, entry)
            if None not in (known, entry) and known != entry:
                raise _error(f"operands shard {name} over {known!r} and {entry!r}", _RESHARD, _AUTO)
            axes[name] = entry if known is None else known
    used: dict[str, str] = {}
    for name in result_names:
        for axis in axis_names(axes.get(name)):
            if axis in used:
                raise _error(
                    f"{used[axis]} and {name} are both sharded over {axis!r}", _RESHARD, _AUTO
                )
            used[axis] = name
    return NamedSharding(mesh, PartitionSpec(*(axes.get(name) for name in result_names)))


def _common_mesh(operands: Sequence[ShapedArray]):
    """The mesh that specs refer to; JAX itself compares meshes whose axes are not explicit."""
    meshes = {x.sharding.mesh for x in operands if any(tuple(x.sharding.spec))}
    if len(meshes) > 1:
        raise _error(f"operands are on different meshes: {sorted(map(str, meshes))}", _RESHARD)
    return next(iter(meshes), operands[0].sharding.mesh)


def axis_names(entry) -> tuple[str, ...]:
    """The mesh axes that one entry of a PartitionSpec names."""
    if entry is None:
        return ()
    return entry if isinstance(entry, tuple) else (entry,)


def _contracted(of_a, of_b) -> TypeError:
    return _error(
        f"K is sharded on both operands, over {of_a!r} and {of_b!r}, and is never summed over "
        "devices",
        "jax.sharding.reshard one operand, so that its K is not sharded",
        _AUTO,
        "mmaemu_jax.Contraction where a contraction can be chosen",
    )


def _error(what: str, *ways_out: str) -> TypeError:
    return TypeError(message(f"{_FUNCTION}: {what}.", ways_out))
