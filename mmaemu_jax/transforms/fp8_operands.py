"""The operands that XLA's FP8 rewriter sees through: FP8 itself, or FP8 dequantised by a scalar.

Its pattern (``MatchFp8Param`` in xla/service/gpu/transforms/gemm_rewriter.cc): a conversion from
FP8 to a wider type, then at most one multiplication or division by a scalar, then operations that
only move elements. The scalar becomes a scale of the GEMM, and the moves are done on the FP8 array.
"""

import dataclasses
import math

import ml_dtypes
import numpy as np
from jax.extend.core import JaxprEqn, Literal, Var

from mmaemu_jax.transforms.flow import Atom, Flow, aval_of, is_fp8

#: Every FP8 value is one of these types' values, so that conversions between them are exact.
WIDE_DTYPES = tuple(map(np.dtype, (np.float32, np.float16, ml_dtypes.bfloat16)))

#: XLA sinks these below elementwise operations (its reshape mover).
REARRANGEMENTS = frozenset({"reshape", "transpose", "squeeze", "expand_dims"})
#: These leave no trace in what XLA's rewriter sees.
TRANSPARENT = frozenset({"copy", "name", "pvary", "sharding_constraint"})
#: What may stand between a dequantisation and the dot.
MOVES = REARRANGEMENTS | TRANSPARENT | {"broadcast_in_dim", "slice", "dynamic_slice", "pad"}


@dataclasses.dataclass(frozen=True)
class Fp8Operand:
    """An operand of a dot that is an FP8 array under moves and a scalar.

    Attributes:
        source: the FP8 array.
        moves: equations that rearrange its elements, to be done on the FP8 array, in order.
        scale: the scalar (of one element), or None.
        divided: the scalar divides.
    """

    source: Atom
    moves: tuple[JaxprEqn, ...] = ()
    scale: Atom | None = None
    divided: bool = False


def match_operand(flow: Flow, atom: Atom) -> Fp8Operand | str | None:
    """The FP8 operand behind ``atom``; None if it has nothing to do with FP8.

    A string says why an operand that comes from FP8 is none for XLA's rewriter.
    """
    if not isinstance(atom, Var):
        return _match_operand(flow, atom)
    if atom not in flow.matched_operands:
        flow.matched_operands[atom] = _match_operand(flow, atom)
    return flow.matched_operands[atom]


def _match_operand(flow: Flow, atom: Atom) -> Fp8Operand | str | None:
    moves: list[JaxprEqn] = []
    scale: Atom | None = None
    divided = False
    converted_last = False
    why_not = ""
    while not is_fp8(atom):
        eqn = flow.maker(atom)
        name = eqn.primitive.name if eqn is not None else ""
        if eqn is None or aval_of(atom).dtype not in WIDE_DTYPES:
            return None
        if name == "convert_element_type":
            converted_last |= scale is None and not is_fp8(eqn.invars[0])
            atom = eqn.invars[0]
        elif name in ("mul", "div"):
            factor = scalar_factor(flow, eqn)
            if factor is None:
                return _not_by_a_scalar(flow, eqn)
            if scale is not None:
                why_not = why_not or "it is scaled twice after its conversion from FP8"
            if converted_last:
                why_not = why_not or "it is converted again after its scaling"
            scale, divided, atom = factor.factor, name == "div", factor.scaled
        elif name in MOVES:
            if scale is not None and name not in REARRANGEMENTS | TRANSPARENT:
                why_not = why_not or f"{name} stands between its conversion from FP8 and its scale"
            if name == "pad" and not _is_zero(flow, eqn.invars[1]):
                why_not = why_not or "it is padded with something else than zeros"
            moves.append(eqn)
            atom = eqn.invars[0]
        else:
            return None
    if why_not:
        return why_not
    return Fp8Operand(atom, tuple(moves[::-1]), scale, divided)


@dataclasses.dataclass(frozen=True)
class ScalarFactor:
    """A multiplication or division of an array by a scalar.

    Attributes:
        scaled: the array.
        factor: the scalar, one element of any rank.
    """

    scaled: Atom
    factor: Atom


def scalar_factor(flow: Flow, eqn: JaxprEqn) -> ScalarFactor | None:
    """How ``eqn``, a mul or a div, scales an array by a scalar; None if it does something else."""
    left, right = eqn.invars
    candidates = [(left, right)] if eqn.primitive.name == "div" else [(left, right), (right, left)]
    for scaled, scalar in candidates:
        factor = _before_broadcast(flow, scalar)
        if factor is not None and aval_of(scaled).shape == aval_of(eqn.outvars[0]).shape:
            return ScalarFactor(scaled, factor)
    return None


def _before_broadcast(flow: Flow, atom: Atom) -> Atom | None:
    """The one element that ``atom`` repeats, if it is seen to repeat one."""
    while not _has_one_element(atom):
        eqn = flow.maker(atom)
        if eqn is None or eqn.primitive.name not in REARRANGEMENTS | TRANSPARENT | {
            "broadcast_in_dim"
        }:
            return None
        atom = eqn.invars[0]
    return atom


def _has_one_element(atom: Atom) -> bool:
    size = math.prod(aval_of(atom).shape)
    return isinstance(size, int) and size == 1


def _not_by_a_scalar(flow: Flow, eqn: JaxprEqn) -> str | None:
    """Why the product or quotient ``eqn`` of two arrays is no dequantisation by a scalar."""
    operands = eqn.invars[:1] if eqn.primitive.name == "div" else eqn.invars
    if all(match_operand(flow, atom) is None for atom in operands):
        return None
    shapes = " and ".join(str(list(aval_of(atom).shape)) for atom in eqn.invars)
    return f"its dequantisation scale is not a scalar ({eqn.primitive.name} of {shapes})"


def _is_zero(flow: Flow, atom: Atom) -> bool:
    """A constant zero, as XLA's constant folding sees it."""
    eqn = flow.maker(atom)
    if eqn is not None:
        return eqn.primitive.name == "convert_element_type" and _is_zero(flow, eqn.invars[0])
    return isinstance(atom, Literal) and not np.any(np.asarray(atom.val))


def moved_equations(operand: Fp8Operand) -> tuple[Atom, list[JaxprEqn]]:
    """``operand``'s moves as equations on its FP8 array, and what they lead to."""
    atom, eqns = operand.source, []
    dtype = aval_of(operand.source).dtype
    for eqn in operand.moves:
        moved = Var(aval_of(eqn.outvars[0]).update(dtype=dtype, weak_type=False))
        rest = eqn.invars[1:]
        if eqn.primitive.name == "pad":
            zero = rest[0]
            rest = [
                Literal(np.zeros((), dtype), aval_of(zero).update(dtype=dtype, weak_type=False))
            ]
        eqns.append(eqn.replace(invars=[atom, *rest], outvars=[moved]))
        atom = moved
    return atom, eqns
