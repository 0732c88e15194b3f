"""Walking a jaxpr: every equation, however deeply nested, with what it is nested in.

Nothing here knows about GEMMs. Primitives are recognised by name, because the objects behind the
names are not public; a primitive that is not listed here is still entered, and how often it runs
the jaxprs it holds counts as unknown.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

#: Primitives that run each jaxpr they hold exactly once.
_ONCE = frozenset(
    {
        "checkpoint",
        "closed_call",
        "composite",
        "core_call",
        "custom_jvp_call",
        "custom_partitioning",
        "custom_vjp_call",
        "custom_vmap_call",
        "jit",
        "pjit",
        "remat",
        "remat2",
    }
)


@dataclasses.dataclass(frozen=True)
class SubJaxpr:
    """A jaxpr that an equation holds.

    Attributes:
        jaxpr: as the equation holds it, closed or not.
        param: the parameter that holds it.
        index: its place where the parameter is a sequence (a branch of cond), else None.
        repeats: how often one execution of the equation runs it; None where that is unknown
            (while_loop). A shard_map runs it once per device.
        conditional: it may not run at all (cond, switch).
    """

    jaxpr: Jaxpr | ClosedJaxpr
    param: str
    index: int | None
    repeats: int | None
    conditional: bool


@dataclasses.dataclass(frozen=True)
class Level:
    """One step of a path: an equation, and the jaxpr of it that is entered."""

    eqn: JaxprEqn
    sub: SubJaxpr

    @property
    def label(self) -> str:
        """How scopes name it: ``jit(step)``, ``scan``, ``cond[1]``, ``while(cond_jaxpr)``."""
        primitive, name = self.eqn.primitive.name, self.eqn.params.get("name")
        if self.sub.conditional:
            return f"{primitive}[{self.sub.index}]"
        if isinstance(name, str):
            return f"{primitive}({name})"
        if primitive == "while" and self.sub.param == "cond_jaxpr":
            return "while(cond_jaxpr)"
        return primitive


@dataclasses.dataclass(frozen=True)
class Occurrence:
    """An equation and the levels around it, outermost first."""

    eqn: JaxprEqn
    path: tuple[Level, ...]

    @property
    def times(self) -> int:
        """Executions per call of the function, each loop of unknown length counted once."""
        return math.prod(level.sub.repeats for level in self.path if level.sub.repeats is not None)

    @property
    def loops(self) -> tuple[str, ...]:
        """The primitives around it that run it an unknown number of times."""
        return tuple(x.eqn.primitive.name for x in self.path if x.sub.repeats is None)

    @property
    def conditional(self) -> bool:
        """It lies in a branch that may not be taken."""
        return any(level.sub.conditional for level in self.path)

    @property
    def scope(self) -> str:
        """The named scopes and levels around it, such as ``jit(step)/layer0/scan``."""
        parts = [part for x in self.path for part in (name_stack(x.eqn), x.label)]
        return "/".join(part for part in [*parts, name_stack(self.eqn)] if part)


def name_stack(eqn: JaxprEqn) -> str:
    """The named scopes (and transformations) of ``eqn`` within its own jaxpr."""
    return str(eqn.source_info.name_stack)


def open_jaxpr(jaxpr: Jaxpr | ClosedJaxpr) -> Jaxpr:
    """The jaxpr without its constants."""
    return jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr


def with_equations(jaxpr, eqns: list[JaxprEqn], outvars=None):
    """``jaxpr``, closed or not, with other equations and results of the same types."""
    inner = open_jaxpr(jaxpr)
    changed = inner.replace(eqns=eqns, outvars=inner.outvars if outvars is None else outvars)
    if isinstance(jaxpr, Jaxpr):  # newer versions of JAX have no other kind
        return changed
    return ClosedJaxpr(changed, jaxpr.consts)


def map_sub_jaxprs(eqn: JaxprEqn, change: Callable[["SubJaxpr"], Any]) -> JaxprEqn:
    """``eqn`` with each jaxpr among its parameters replaced by what ``change`` makes of it."""
    params = dict(eqn.params)
    for sub in sub_jaxprs(eqn):
        if sub.index is None:
            params[sub.param] = change(sub)
        else:
            members = list(params[sub.param])
            members[sub.index] = change(sub)
            params[sub.param] = type(params[sub.param])(members)
    return eqn.replace(params=params)


def sub_jaxprs(eqn: JaxprEqn) -> tuple[SubJaxpr, ...]:
    """The jaxprs among the parameters of ``eqn``, in the order of the parameters."""
    found = []
    for param, value in eqn.params.items():
        if _is_jaxpr(value):
            found.append(_described(eqn, value, param, None))
        elif isinstance(value, tuple | list):
            members = [(i, item) for i, item in enumerate(value) if _is_jaxpr(item)]
            found.extend(_described(eqn, item, param, i) for i, item in members)
    return tuple(found)


def walk(jaxpr: Jaxpr | ClosedJaxpr, path: tuple[Level, ...] = ()) -> Iterator[Occurrence]:
    """Every equation of ``jaxpr`` and of the jaxprs inside it, in program order.

    A jaxpr that several equations hold is visited once for each of them.
    """
    for eqn in open_jaxpr(jaxpr).eqns:
        yield Occurrence(eqn, path)
        for sub in sub_jaxprs(eqn):
            yield from walk(sub.jaxpr, (*path, Level(eqn, sub)))


def _is_jaxpr(value: Any) -> bool:
    return isinstance(value, Jaxpr | ClosedJaxpr)


def _described(eqn: JaxprEqn, jaxpr, param: str, index: int | None) -> SubJaxpr:
    conditional = eqn.primitive.name == "cond"
    return SubJaxpr(jaxpr, param, index, _repeats(eqn), conditional)


def _repeats(eqn: JaxprEqn) -> int | None:
    name, params = eqn.primitive.name, eqn.params
    if name == "scan":
        return params["length"]
    if name == "shard_map":
        sizes = params["mesh"].shape
        return math.prod(sizes[axis] for axis in params["newly_manual_axes"])
    return 1 if name in _ONCE or name == "cond" else None
