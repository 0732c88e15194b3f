"""Jits that a pattern of XLA's FP8 rewriter crosses: XLA inlines every jit before it looks.

A dot inside a jit may have its operand dequantised outside, or its result scaled outside. Such a
jit is inlined into the program around it.
"""

from collections.abc import Iterator

from jax.extend.core import Jaxpr, JaxprEqn, Var

from mmaemu_jax.transforms.flow import Atom, Flow, is_fp8
from mmaemu_jax.transforms.fp8_epilogues import only_use_below_moves
from mmaemu_jax.transforms.fp8_operands import MOVES, match_operand
from mmaemu_jax.transforms.inlining import Inlined, inlinable_jit

_SCALES_OR_CONVERTS = frozenset({"clamp", "div", "max", "min", "mul"})


def flattened(jaxpr: Jaxpr) -> Inlined:
    """``jaxpr`` with its calls inlined, and the jits that patterns cross."""
    inlined = Inlined(jaxpr)
    while crossed := _crossed(inlined.jaxpr):
        inlined = Inlined(inlined.jaxpr, crossed, inlined.paths)
    return inlined


def _crossed(jaxpr: Jaxpr) -> frozenset[int]:
    """The ids of the jits in ``jaxpr`` that a pattern crosses."""
    flow = Flow(jaxpr)
    crossed = set()
    for eqn in flow.eqns:
        inner = inlinable_jit(eqn)
        if inner is not None and _is_crossed(flow, eqn, Inlined(inner).jaxpr):
            crossed.add(id(eqn))
    return frozenset(crossed)


def _is_crossed(flow: Flow, jit: JaxprEqn, inner: Jaxpr) -> bool:
    inside = Flow(inner)
    places = {var: i for i, var in enumerate(inner.invars)}
    for dot in inside.eqns:
        if dot.primitive.name != "dot_general":
            continue
        for atom in dot.invars:
            origin = _origin(inside, atom)
            if origin in places and _is_dequantised(flow, jit.invars[places[origin]]):
                return True
        if any(
            use.primitive.name in _SCALES_OR_CONVERTS
            for use in _uses_outside(flow, jit, inside, inner, dot)
        ):
            return True
    return False


def _is_dequantised(flow: Flow, atom: Atom) -> bool:
    return not is_fp8(atom) and match_operand(flow, atom) is not None


def _origin(flow: Flow, atom: Atom) -> Var | None:
    """What ``atom`` is a conversion, a move or a scaling of: a variable that nothing makes."""
    while (eqn := flow.maker(atom)) is not None:
        if eqn.primitive.name not in MOVES | {"convert_element_type", "mul", "div"}:
            return None
        atom = eqn.invars[0]
    return atom if isinstance(atom, Var) else None


def _uses_outside(
    flow: Flow, jit: JaxprEqn, inside: Flow, inner: Jaxpr, dot: JaxprEqn
) -> Iterator[JaxprEqn]:
    """What uses the result of ``dot`` around the jit, if the jit only returns it."""
    value, use = only_use_below_moves(inside, dot.outvars[0])
    if use is None and value in inner.outvars:
        _, use = only_use_below_moves(flow, jit.outvars[inner.outvars.index(value)])
        if use is not None:
            yield use
