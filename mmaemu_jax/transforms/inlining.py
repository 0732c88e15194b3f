"""Inlining the calls that XLA inlines, where a pattern of XLA's FP8 rewriter may cross them.

Calls of functions with derivatives of their own are inlined always (their derivatives were taken
before, so the call is all that is left of them). A jit is kept, unless it has no dot in it and is
small: what jnp functions such as ``clip`` leave behind.
"""

from collections.abc import Mapping
from types import MappingProxyType

import jax
from jax.extend.core import Jaxpr, JaxprEqn, Var

from mmaemu_jax.transforms.flow import Atom
from mmaemu_jax.transforms.jaxprs import Level, open_jaxpr, sub_jaxprs

#: Primitives that run a jaxpr on their operands, one to one, and no more.
CALLS = frozenset({"closed_call", "core_call", "custom_jvp_call", "custom_vjp_call"})
_JITS = frozenset({"jit", "pjit"})
_SMALL = 12

Located = tuple[JaxprEqn, tuple[Level, ...]]


class Inlined:
    """A jaxpr without the calls in it.

    Attributes:
        jaxpr: the flat jaxpr, open.
        paths: for each equation of it, by id, the levels that were between it and the caller.
    """

    def __init__(
        self,
        jaxpr: Jaxpr,
        jits: frozenset[int] = frozenset(),
        paths: Mapping[int, tuple[Level, ...]] = MappingProxyType({}),
    ):
        """Of ``jaxpr``, whose equations have ``paths``; ``jits`` by id are inlined besides."""
        self.paths: dict[int, tuple[Level, ...]] = {}
        self._jits, self._known_paths = jits, paths
        self._eqns: list[JaxprEqn] = []
        names: dict[Var, Atom] = {}
        self._append(jaxpr, names, (), has_products(jaxpr))
        outvars = [_renamed(names, atom) for atom in jaxpr.outvars]
        self.jaxpr = jaxpr.replace(eqns=self._eqns, outvars=outvars)

    def _append(self, jaxpr: Jaxpr, names: dict, path: tuple[Level, ...], small_jits: bool) -> None:
        for eqn in jaxpr.eqns:
            inner = inlinable_jit(eqn) if id(eqn) in self._jits else _inlinable(eqn, small_jits)
            invars = [_renamed(names, atom) for atom in eqn.invars]
            if inner is None:
                self._keep(eqn, invars, names, path)
                continue
            (sub,) = sub_jaxprs(eqn)
            inside = dict(zip(inner.invars, invars, strict=True))
            stack = eqn.source_info.name_stack
            outer = len(self._eqns)
            known = self._known_paths.get(id(eqn), ())
            self._append(inner, inside, (*path, *known, Level(eqn, sub)), small_jits)
            for i in range(outer, len(self._eqns)):
                self._prefix(i, stack)
            names.update(
                zip(eqn.outvars, (_renamed(inside, x) for x in inner.outvars), strict=True)
            )

    def _keep(self, eqn: JaxprEqn, invars, names: dict, path: tuple[Level, ...]) -> None:
        if path:  # inlined twice, a jaxpr must not define its variables twice
            outvars = [Var(var.aval) for var in eqn.outvars]
            names.update(zip(eqn.outvars, outvars, strict=True))
        else:
            outvars = eqn.outvars
        kept = eqn.replace(invars=invars, outvars=outvars)
        self.paths[id(kept)] = (*path, *self._known_paths.get(id(eqn), ()))
        self._eqns.append(kept)

    def _prefix(self, i: int, stack) -> None:
        eqn = self._eqns[i]
        if str(eqn.source_info.name_stack).startswith(str(stack)):
            return  # a call's jaxpr may name the scopes around the call itself
        info = eqn.source_info.replace(name_stack=stack + eqn.source_info.name_stack)
        self._eqns[i] = eqn.replace(source_info=info)
        self.paths[id(self._eqns[i])] = self.paths.pop(id(eqn))


def _renamed(names: dict[Var, Atom], atom: Atom) -> Atom:
    return names.get(atom, atom) if isinstance(atom, Var) else atom


def _inlinable(eqn: JaxprEqn, small_jits: bool) -> Jaxpr | None:
    """The open jaxpr to put in ``eqn``'s place, if it is to be inlined."""
    if eqn.primitive.name in CALLS:
        return _body(eqn)
    inner = inlinable_jit(eqn) if small_jits else None
    if inner is None or len(inner.eqns) > _SMALL or has_products(inner, deep=True):
        return None
    return inner


def inlinable_jit(eqn: JaxprEqn) -> Jaxpr | None:
    """The open jaxpr of ``eqn`` if it is a jit that asks for no shardings."""
    if eqn.primitive.name not in _JITS:
        return None
    shardings = (*eqn.params["in_shardings"], *eqn.params["out_shardings"])
    if any(isinstance(s, jax.sharding.Sharding) for s in shardings):
        return None
    return _body(eqn)


def _body(eqn: JaxprEqn) -> Jaxpr | None:
    (sub,) = sub_jaxprs(eqn)
    inner = open_jaxpr(sub.jaxpr)
    return None if inner.constvars or len(inner.invars) != len(eqn.invars) else inner


def has_products(jaxpr: Jaxpr, *, deep: bool = False) -> bool:
    """Whether there is a dot in ``jaxpr``, in calls or (``deep``) in any jaxpr inside it."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "dot_general":
            return True
        if (deep or eqn.primitive.name in CALLS) and any(
            has_products(open_jaxpr(sub.jaxpr), deep=deep) for sub in sub_jaxprs(eqn)
        ):
            return True
    return False
