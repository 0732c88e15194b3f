"""Rewriting a jaxpr: every FP8 dot that can be taken over becomes an emulated GEMM.

Equations that have nothing to do with FP8 stay what they are, with their names, source lines,
shardings and effects; jaxprs inside equations are rewritten in place.
"""

import dataclasses
import weakref
from collections.abc import Callable
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Var

from mmaemu_jax.notices import Notice
from mmaemu_jax.transforms.crossings import flattened
from mmaemu_jax.transforms.dot_program import DotProgram, equations_for
from mmaemu_jax.transforms.emulation_report import (
    EmulatedGemm,
    EmulationReport,
    LeftProduct,
    emulated_gemm,
    left_product,
)
from mmaemu_jax.transforms.flow import Atom, Flow, aval_of, is_fp8, live_equations
from mmaemu_jax.transforms.fp8_operands import moved_equations
from mmaemu_jax.transforms.inlining import CALLS, Inlined
from mmaemu_jax.transforms.jaxprs import (
    Level,
    Occurrence,
    map_sub_jaxprs,
    open_jaxpr,
    sub_jaxprs,
    walk,
    with_equations,
)
from mmaemu_jax.transforms.takeover import EmulationOptions, Refusal, Takeover, consider

#: Primitives whose jaxprs run on an equation's own operands, so that they can be rewritten.
_SEEN_THROUGH = CALLS | {
    "checkpoint",
    "cond",
    "custom_vmap_call",
    "jit",
    "pjit",
    "remat",
    "remat2",
    "scan",
    "shard_map",
    "while",
}
#: Products of FP8 that are no dot_general.
_OTHER_PRODUCTS = frozenset(
    {"conv_general_dilated", "ragged_dot", "ragged_dot_general", "scaled_matmul"}
)

Path = tuple[Level, ...]


@dataclasses.dataclass(frozen=True)
class Found:
    """An FP8 product of the program, and what becomes of it.

    Attributes:
        entry: as the report tells it.
        notices: the warnings that it deserves.
        error: what a call raises because of it whatever the caller tolerates, or None.
    """

    entry: EmulatedGemm | LeftProduct
    notices: tuple[Notice, ...] = ()
    error: Exception | None = None


@dataclasses.dataclass(frozen=True)
class Rewritten:
    """A rewritten jaxpr, and what was found in it and inside it, in program order."""

    jaxpr: Any
    found: tuple[Found, ...]

    def report(self, function: str, options: EmulationOptions) -> EmulationReport:
        """What was found, as a report on ``function``."""
        entries = [found.entry for found in self.found]
        return EmulationReport(
            function,
            options.profile.name,
            options.epilogue,
            tuple(entry for entry in entries if isinstance(entry, EmulatedGemm)),
            tuple(entry for entry in entries if isinstance(entry, LeftProduct)),
        )


class Rewriter:
    """Rewrites jaxprs by one set of options.

    Jaxprs of jits are remembered while they live: the same jit becomes the same new jit, which JAX
    has compiled already.
    """

    @property
    def level(self) -> "type[FlatLevel]":
        """What rewrites one flat jaxpr."""
        return FlatLevel

    def __init__(self, options: EmulationOptions, emulate_flat: Callable):
        self.options = options
        self._emulate_flat = emulate_flat
        self._jits: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()

    def rewrite(self, jaxpr: Jaxpr | ClosedJaxpr, path: Path = ()) -> Rewritten:
        """``jaxpr``, closed or not, with its FP8 dots emulated."""
        inlined = flattened(open_jaxpr(jaxpr))
        found: list[Found] = []
        level = self.level(self, inlined, path, found)
        eqns, outvars = level.rewritten()
        return Rewritten(with_equations(jaxpr, eqns, outvars), tuple(found))

    def inside(self, eqn: JaxprEqn, path: Path, found: list[Found]) -> JaxprEqn:
        """``eqn`` with its own jaxprs rewritten."""
        if eqn.primitive.name not in _SEEN_THROUGH:
            found.extend(self._unreachable(eqn, path))
            return eqn

        def change(sub):
            inner = self._remembered(eqn, sub.jaxpr, (*path, Level(eqn, sub)))
            found.extend(inner.found)
            return inner.jaxpr

        changed = map_sub_jaxprs(eqn, change)
        if eqn.primitive.name == "custom_vmap_call":
            rule = self._emulated_rule(eqn.params["rule"])
            return changed.replace(params={**changed.params, "rule": rule})
        return changed

    def _remembered(self, eqn: JaxprEqn, jaxpr, path: Path) -> Rewritten:
        if eqn.primitive.name not in ("jit", "pjit"):
            return self.rewrite(jaxpr, path)
        known = self._jits.get(jaxpr)
        if known is None:
            known = self._jits[jaxpr] = self.rewrite(jaxpr, path)
        return known

    def _emulated_rule(self, rule: Callable) -> Callable:
        """A custom_vmap's rule, its batched computation emulated too."""

        def emulated(axis_size, in_batched, *args):
            out_batched = []

            def compute(*args):
                out, batched = rule(axis_size, in_batched, *args)
                out_batched.append(batched)
                return out

            out = self._emulate_flat(compute, args)
            return out, out_batched[-1]

        return emulated

    def _unreachable(self, eqn: JaxprEqn, path: Path) -> list[Found]:
        """The FP8 products in an equation that cannot be rewritten, or that it is itself."""
        name = eqn.primitive.name
        if name in _OTHER_PRODUCTS and any(map(is_fp8, eqn.invars)):
            reason = f"{name} of FP8 operands is not modelled"
            return [Found(left_product(Occurrence(eqn, path), reason))]
        reason = f"emulate does not see through {name}"
        return [
            Found(left_product(inner, reason))
            for sub in sub_jaxprs(eqn)
            for inner in walk(sub.jaxpr, (*path, Level(eqn, sub)))
            if _is_fp8_product(inner.eqn)
        ]


def _is_fp8_product(eqn: JaxprEqn) -> bool:
    name = eqn.primitive.name
    return (name == "dot_general" or name in _OTHER_PRODUCTS) and any(map(is_fp8, eqn.invars))


class FlatLevel:
    """One flat jaxpr while it is rewritten."""

    def __init__(self, rewriter: Rewriter, inlined: Inlined, path: Path, found: list[Found]):
        self._rewriter, self._found = rewriter, found
        self._jaxpr, self._paths, self._path = inlined.jaxpr, inlined.paths, path
        self._flow = Flow(inlined.jaxpr)
        self._takeovers: dict[int, tuple[JaxprEqn, Takeover]] = {}
        self._waiting: set[int] = set()

    def rewritten(self) -> tuple[list[JaxprEqn], list[Atom]]:
        """The new equations and results."""
        eqns: list[JaxprEqn] = []
        for eqn in self._flow.eqns:
            if eqn.primitive.name == "dot_general":
                self._consider(eqn)
            if id(eqn) in self._takeovers:
                eqns.extend(self._emulated(*self._takeovers[id(eqn)]))
            elif id(eqn) not in self._waiting:
                eqns.extend(self._other(eqn))
        changed = self._jaxpr.replace(eqns=eqns)
        return live_equations(changed), list(changed.outvars)

    def _other(self, eqn: JaxprEqn) -> list[JaxprEqn]:
        path = (*self._path, *self._paths[id(eqn)])
        return [self._rewriter.inside(eqn, path, self._found)]

    def _consider(self, dot: JaxprEqn) -> None:
        outcome = consider(self._flow, dot, self._rewriter.options)
        if outcome is None:
            return
        path = (*self._path, *self._paths[id(dot)])
        occurrence = Occurrence(dot, path)
        if isinstance(outcome, Refusal):
            entry = left_product(occurrence, outcome.reason)
            self._found.append(Found(entry, error=outcome.error))
            return
        self._found.append(Found(emulated_gemm(occurrence, outcome), outcome.plan.notices))
        left = outcome.spread.left
        if left is not None:
            reason = (
                f"K is spread over mesh axes {left.axes}: the local GEMM is emulated, the sum of "
                "its results over devices is JAX's, in an order of its own (see contraction=)"
            )
            self._found.append(Found(left_product(Occurrence(left.eqn, path), reason)))
        # What the GEMM does besides is done where the last of it was: its operands are known there.
        chain = [dot, *outcome.absorbed]
        self._takeovers[id(chain[-1])] = (dot, outcome)
        self._waiting.update(map(id, chain))

    def _emulated(self, dot: JaxprEqn, takeover: Takeover) -> list[JaxprEqn]:
        eqns, operands = [], []
        for operand in (takeover.a, takeover.b):
            atom, moved = moved_equations(operand)
            eqns.extend(moved)
            operands.append(atom)
        after = takeover.epilogue
        scalings = [(x.scale, x.divided) for x in (takeover.a, takeover.b, after)]
        scalings.append((after.result_scale, after.result_divided))
        operands.extend(scale for scale, _ in scalings if scale is not None)
        program = DotProgram(
            dot.params["dimension_numbers"],
            takeover.plan.model,
            takeover.plan.accumulation,
            self._rewriter.options.backend,
            takeover.gemm.out_dtype,
            after.fp8 or aval_of(dot.outvars[0]).dtype,
            takeover.spread.contraction,
            [None if scale is None else divided for scale, divided in scalings],
        )
        # What rearranges the result follows, the last of it in the place of what was absorbed.
        moves = takeover.rearrangements
        last = takeover.absorbed[-1].outvars[0] if takeover.absorbed else dot.outvars[0]
        changes = {"manual_axis_type": aval_of(last).manual_axis_type}
        changes["dtype"] = aval_of(last).dtype
        results = [Var(aval_of(eqn.outvars[0]).update(**changes)) for eqn in (dot, *moves)]
        results[-1] = last
        eqns.extend(equations_for(program, dot, operands, results[0]))
        for eqn, source, result in zip(moves, results[:-1], results[1:], strict=True):
            eqns.append(eqn.replace(invars=[source, *eqn.invars[1:]], outvars=[result]))
        return eqns
