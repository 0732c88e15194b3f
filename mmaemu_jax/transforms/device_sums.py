"""Sums over devices that follow a dot in a shard_map: contractions whose K is spread over a mesh.

``psum(dot(a, b))`` over a mesh axis is the product of a and b with K spread over that axis,
whether K is features (tensor parallel) or tokens (data parallel). A contraction that says how to
deal with it takes the sum over; else the GEMM is the local one, and the sum stays JAX's: reported.
"""

import dataclasses
import math
from collections.abc import Collection

import jax
from jax.extend.core import JaxprEqn

from mmaemu_jax.contraction import Contraction
from mmaemu_jax.errors import message
from mmaemu_jax.slices_of_k import axes_in_types
from mmaemu_jax.transforms.flow import Atom, Flow, aval_of
from mmaemu_jax.transforms.fp8_epilogues import Epilogue
from mmaemu_jax.transforms.fp8_operands import REARRANGEMENTS, TRANSPARENT

_SUMS = frozenset({"psum", "psum_invariant"})
_PARTIAL_SUMS = frozenset({"reduce_scatter"})
#: Between a dot and a sum over devices, these keep the sum one of the dot's results.
_IN_BETWEEN = REARRANGEMENTS | TRANSPARENT | {"convert_element_type", "div", "mul", "neg"}


@dataclasses.dataclass(frozen=True)
class DeviceSum:
    """A sum over devices of what a GEMM returns.

    Attributes:
        eqn: the equation that sums.
        axes: the mesh axes.
        between: rearrangements between the GEMM's result and the sum.
        direct: nothing else stands between, and every device gets the whole sum.
    """

    eqn: JaxprEqn
    axes: tuple[str, ...]
    between: tuple[JaxprEqn, ...]
    direct: bool


def match_device_sum(flow: Flow, value: Atom, mesh_axes: Collection[str]) -> DeviceSum | None:
    """The sum over ``mesh_axes`` that ``value`` goes into, if that is its only use."""
    between, direct = [], True
    eqn = flow.only_use(value)
    while eqn is not None and eqn.primitive.name in _IN_BETWEEN:
        direct &= eqn.primitive.name in REARRANGEMENTS | TRANSPARENT
        between.append(eqn)
        eqn = flow.only_use(eqn.outvars[0])
    if eqn is None or eqn.primitive.name not in _SUMS | _PARTIAL_SUMS:
        return None
    whole = eqn.primitive.name in _SUMS and eqn.params.get("axis_index_groups") is None
    axes = eqn.params["axes"] if "axes" in eqn.params else eqn.params["axis_name"]
    names = tuple(axis for axis in axes if axis in mesh_axes)
    if not names:
        return None  # a sum over an axis that vmap names
    direct &= whole and len(names) == len(axes) and len(eqn.invars) == 1
    return DeviceSum(eqn, names, tuple(between), direct)


@dataclasses.dataclass(frozen=True)
class Spread:
    """How the K of a dot is contracted.

    Attributes:
        contraction: what the GEMM does.
        gathered, parts: each GEMM has the dot's K times the first, divided by the second.
        taken: the sum over devices that the contraction does itself, or None.
        left: the sum over devices that is left to JAX, or None.
    """

    contraction: Contraction
    gathered: int = 1
    parts: int = 1
    taken: DeviceSum | None = None
    left: DeviceSum | None = None

    @property
    def is_reduced_first(self) -> bool:
        """Partial results are reduced before anything else is done with them."""
        return self.parts > 1 and self.taken is None

    def own_k(self, k: int) -> int:
        """The K of each GEMM."""
        return k * self.gathered // self.parts


def spread_contraction(
    flow: Flow, dot: JaxprEqn, epilogue: Epilogue, contraction: Contraction
) -> Spread | ValueError:
    """What becomes of ``dot``'s K, or what a call raises."""
    with dot.ctx.manager:
        mesh = jax.sharding.get_abstract_mesh()
    end = epilogue.absorbed[-1] if epilogue.absorbed else dot
    total = match_device_sum(flow, end.outvars[0], mesh.manual_axes)
    if total is not None:
        return _summed(total, math.prod(mesh.shape[axis] for axis in total.axes), contraction)
    if contraction.parts > 1:
        return Spread(contraction, parts=contraction.parts if _is_local(contraction) else 1)
    if contraction.axes and not set(contraction.axes) & set(mesh.manual_axes):
        size = math.prod(mesh.shape.get(axis, 1) for axis in contraction.axes)
        return Spread(contraction, parts=size if _is_local(contraction) else 1)
    # Inside a shard_map over these axes the K of a dot that no sum follows is whole.
    size = math.prod(mesh.shape[axis] for axis in _axes_in_types(dot))
    parts = size if _is_local(contraction) else 1
    return Spread(dataclasses.replace(contraction, axes=()), parts=parts)


def _axes_in_types(dot: JaxprEqn) -> tuple[str, ...]:
    """The mesh axes over which the types of both operands spread K (explicit sharding)."""
    contracting, _ = dot.params["dimension_numbers"]
    if not contracting[0]:
        return ()
    return axes_in_types([aval_of(x) for x in dot.invars], [dims[-1] for dims in contracting])


def _summed(total: DeviceSum, size: int, contraction: Contraction) -> Spread | ValueError:
    if contraction.mode == "error":
        what = f"emulate: K of a dot is spread over mesh axes {total.axes}: its result is summed."
        ways_out = [
            "contraction='per_device': local GEMMs, and a sum in rank order",
            f"contraction=Contraction('gather', axes={total.axes}): one GEMM over the whole K",
        ]
        return ValueError(message(what, ways_out))
    is_named = contraction.axes == total.axes
    if total.direct and (is_named or (_is_local(contraction) and not contraction.axes)):
        how = dataclasses.replace(contraction, axes=total.axes, parts=1)
        return Spread(how, gathered=1 if _is_local(how) else size, taken=total)
    return Spread(Contraction(), left=total)


def _is_local(contraction: Contraction) -> bool:
    return contraction.mode == "per_device"
