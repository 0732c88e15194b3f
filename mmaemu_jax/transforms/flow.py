"""Which equation of a jaxpr makes a value, and which use it; dead equations do not count."""

from collections import defaultdict
from typing import Any, cast

import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Jaxpr, JaxprEqn, Literal, Var

Atom = Var | Literal


def aval_of(atom: Atom) -> ShapedArray:
    """The type of an array."""
    return cast(ShapedArray, atom.aval)


def is_fp8(atom: Atom) -> bool:
    """An FP8 array of any flavour."""
    dtype = getattr(atom.aval, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.name.startswith("float8_")


class Flow:
    """The live equations of one jaxpr and the values between them."""

    def __init__(self, jaxpr: Jaxpr):
        self.eqns = live_equations(jaxpr)
        #: What fp8_operands.match_operand found: values are shared, so looking again and again is
        #: exponential in the length of a chain of products.
        self.matched_operands: dict[Var, Any] = {}
        self._maker = {var: eqn for eqn in self.eqns for var in eqn.outvars}
        self._uses: dict[Var, list[JaxprEqn | None]] = defaultdict(list)
        for eqn in self.eqns:
            for atom in eqn.invars:
                if isinstance(atom, Var):
                    self._uses[atom].append(eqn)
        for atom in jaxpr.outvars:
            if isinstance(atom, Var):
                self._uses[atom].append(None)

    def maker(self, atom: Atom) -> JaxprEqn | None:
        """The equation that ``atom`` is a result of; None for an input or a literal."""
        return self._maker.get(atom) if isinstance(atom, Var) else None

    def uses(self, atom: Atom) -> list[JaxprEqn | None]:
        """One entry for each time that ``atom`` is used; None stands for a result of the jaxpr."""
        return self._uses.get(atom, []) if isinstance(atom, Var) else []

    def only_use(self, atom: Atom) -> JaxprEqn | None:
        """The equation that uses ``atom``, if nothing else does."""
        uses = self.uses(atom)
        return uses[0] if len(uses) == 1 else None


def live_equations(jaxpr: Jaxpr) -> list[JaxprEqn]:
    """The equations that a result or an effect depends on, in their order."""
    needed = {atom for atom in jaxpr.outvars if isinstance(atom, Var)}
    live = []
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or any(var in needed for var in eqn.outvars):
            live.append(eqn)
            needed.update(atom for atom in eqn.invars if isinstance(atom, Var))
    return live[::-1]
