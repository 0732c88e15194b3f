"""What follows a dot and XLA folds into its GEMM: a scaling of the result, a conversion to FP8.

``F8ScaleD`` of XLA's FP8 rewriter: a multiplication or division of the result by a scalar becomes
the GEMM's first scale, in float32 and before the one rounding to the output dtype, if

- the GEMM's result has no other use, and reshapes and transposes between them have none either;
- the first operand brought no scale of its own;
- the broadcast scalar has no other use (XLA merges equal broadcasts before);
- no slice stands between them, so that M and N are multiples of 16.

``F8ConvertD``: a clamp to the finite range of an FP8 format and the conversion to it make an FP8
output of the GEMM. A scaling before them that did not become the first scale is its scale_result.
"""

import dataclasses

import numpy as np
from jax.extend.core import JaxprEqn, Literal, Var

from mmaemu_jax.formats import Fp8Format
from mmaemu_jax.transforms.flow import Atom, Flow, aval_of
from mmaemu_jax.transforms.fp8_operands import (
    REARRANGEMENTS,
    TRANSPARENT,
    ScalarFactor,
    scalar_factor,
)

_FOLDED_ELSEWHERE = {
    "add": "XLA adds a bias or a matrix in the GEMM's epilogue, which is not modelled: it is "
    "added to the rounded result",
    "add_any": "XLA adds a matrix in the GEMM's epilogue, which is not modelled: it is added to "
    "the rounded result",
}
_AMAX = (
    "XLA may compute the maximum of the result's magnitudes in the GEMM, and then folds a "
    "conversion to FP8 as well, which is not modelled"
)


@dataclasses.dataclass(frozen=True)
class Epilogue:
    """What follows a dot and is folded into its GEMM.

    Attributes:
        scale, divided: the scalar that becomes the first scale, or None; whether it divides.
        result_scale, result_divided: likewise the scalar that becomes scale_result.
        fp8: the FP8 dtype that the result is converted to, or None.
        absorbed: the equations from the dot to the last one folded, in order.
        moves: those of ``absorbed`` that only rearrange the result, and so follow the GEMM.
        note: what XLA would do besides, or why nothing is folded; "" if there is nothing to say.
    """

    scale: Atom | None = None
    divided: bool = False
    result_scale: Atom | None = None
    result_divided: bool = False
    fp8: np.dtype | None = None
    absorbed: tuple[JaxprEqn, ...] = ()
    moves: tuple[JaxprEqn, ...] = ()
    note: str = ""


@dataclasses.dataclass(frozen=True)
class _Step:
    """The only use of a value, below rearrangements: ``value`` is what ``eqn`` uses."""

    moves: tuple[JaxprEqn, ...]
    value: Atom
    eqn: JaxprEqn | None

    @property
    def name(self) -> str:
        return "" if self.eqn is None else self.eqn.primitive.name


def _step(flow: Flow, value: Atom) -> _Step:
    moves = []
    eqn = flow.only_use(value)
    while eqn is not None and eqn.primitive.name in REARRANGEMENTS | TRANSPARENT:
        moves.append(eqn)
        value = eqn.outvars[0]
        eqn = flow.only_use(value)
    return _Step(tuple(moves), value, eqn)


def only_use_below_moves(flow: Flow, value: Atom) -> tuple[Atom, JaxprEqn | None]:
    """What ``value`` is after rearrangements, and the only equation that uses that."""
    step = _step(flow, value)
    return step.value, step.eqn


def match_epilogue(
    flow: Flow,
    dot: JaxprEqn,
    *,
    aligned: bool,
    scaled_a: bool,
    scaled_b: bool,
    fp8_outputs: tuple[Fp8Format, ...],
) -> Epilogue:
    """What XLA folds into the GEMM of ``dot``.

    Args:
        flow: of the jaxpr that holds ``dot``.
        dot: the dot_general.
        aligned: M and N are multiples of 16.
        scaled_a, scaled_b: the operand brought a scale of its own.
        fp8_outputs: the FP8 formats that the GEMM can return.
    """
    found = _scaling(flow, dot.outvars[0], aligned, scaled_a, scaled_b)
    if aligned:
        found = _conversion(flow, dot.outvars[0], found, fp8_outputs)
    if found.note:
        return found
    end = found.absorbed[-1] if found.absorbed else dot
    note = _FOLDED_ELSEWHERE.get(_step(flow, end.outvars[0]).name, "")
    if any(use is not None and use.primitive.name == "abs" for use in flow.uses(end.outvars[0])):
        note = _AMAX
    return dataclasses.replace(found, note=note)


def _scaling(flow: Flow, value: Atom, aligned: bool, scaled_a: bool, scaled_b: bool) -> Epilogue:
    """The scaling that becomes the first scale, or a note why it does not."""
    step = _step(flow, value)
    factor = _scalar_of(flow, step)
    if factor is None or step.eqn is None:
        return Epilogue()
    note = _why_not_folded(flow, factor, step.eqn, aligned, scaled_a, scaled_b)
    if note:
        return Epilogue(note=note)
    absorbed = (*step.moves, step.eqn)
    divided = step.name == "div"
    return Epilogue(factor.factor, divided, absorbed=absorbed, moves=step.moves)


def _scalar_of(flow: Flow, step: _Step) -> ScalarFactor | None:
    if step.eqn is None or step.name not in ("mul", "div"):
        return None
    factor = scalar_factor(flow, step.eqn)
    return factor if factor is not None and factor.scaled is step.value else None


def _conversion(
    flow: Flow, value: Atom, found: Epilogue, fp8_outputs: tuple[Fp8Format, ...]
) -> Epilogue:
    """``found`` with the conversion to FP8 that follows, if one does."""
    steps = []
    step = _step(flow, found.absorbed[-1].outvars[0] if found.absorbed else value)
    factor = None if found.absorbed else _scalar_of(flow, step)
    if factor is not None and step.eqn is not None:
        if _is_constant(flow, factor.factor):
            return found  # XLA makes it the GEMM's alpha
        steps.append(step)
        step = _step(flow, step.eqn.outvars[0])
    low, high, step = _clamp(flow, step, steps)
    if step.eqn is None or step.name != "convert_element_type":
        return found
    steps.append(step)
    dtype = aval_of(step.eqn.outvars[0]).dtype
    fp8 = next((fp8 for fp8 in fp8_outputs if fp8.dtype == dtype), None)
    if fp8 is None or (low, high) != (-fp8.max_finite, fp8.max_finite):
        return found
    moves = tuple(move for s in steps for move in s.moves)
    absorbed = tuple(eqn for s in steps for eqn in (*s.moves, s.eqn) if eqn is not None)
    return dataclasses.replace(
        found,
        result_scale=None if factor is None else factor.factor,
        result_divided=steps[0].name == "div",
        fp8=fp8.dtype,
        absorbed=(*found.absorbed, *absorbed),
        moves=(*found.moves, *moves),
        note="",
    )


def _clamp(flow: Flow, step: _Step, steps: list[_Step]):
    """The bounds of the clamp at ``step`` and the step after it; its steps go to ``steps``."""
    bounds: dict[str, float | None] = {"max": None, "min": None}
    if step.eqn is not None and step.name == "clamp":
        low, middle, high = step.eqn.invars
        if middle is step.value:
            steps.append(step)
            step = _step(flow, step.eqn.outvars[0])
            return _constant(flow, low), _constant(flow, high), step
    while step.eqn is not None and step.name in bounds and bounds[step.name] is None:
        others = [x for x in step.eqn.invars if x is not step.value]
        bounds[step.name] = _constant(flow, others[0]) if len(others) == 1 else None
        if bounds[step.name] is None:
            break
        steps.append(step)
        step = _step(flow, step.eqn.outvars[0])
    return bounds["max"], bounds["min"], step


def _constant(flow: Flow, atom: Atom) -> float | None:
    """The value of a constant scalar, as XLA's constant folding sees it, or None."""
    if isinstance(atom, Literal):
        value = np.asarray(atom.val)
        return float(value.reshape(-1)[0]) if value.size == 1 else None
    eqn = flow.maker(atom)
    seen_through = REARRANGEMENTS | TRANSPARENT | {"broadcast_in_dim", "convert_element_type"}
    if eqn is None or eqn.primitive.name not in seen_through:
        return None
    return _constant(flow, eqn.invars[0])


def _why_not_folded(
    flow: Flow,
    factor: ScalarFactor,
    scaling: JaxprEqn,
    aligned: bool,
    scaled_a: bool,
    scaled_b: bool,
) -> str:
    if not aligned:
        return "the scaling of the result is not folded: M or N is padded, so XLA slices first"
    constant = _is_constant(flow, factor.factor)
    if scaled_a and not constant:
        return "the scaling of the result is not folded: the first operand has a scale already"
    if constant and (scaled_a or scaled_b):
        return (
            "the constant that scales the result is not folded: XLA makes it the GEMM's alpha, "
            "and how cuBLASLt multiplies alpha and the scales was never recorded"
        )
    if _spreads(flow, factor.factor, scaling) > 1:
        return "the scaling of the result is not folded: its broadcast scalar has other uses"
    return ""


def _is_constant(flow: Flow, atom: Atom) -> bool:
    """Whether XLA's constant folding makes ``atom`` a constant."""
    if isinstance(atom, Literal):
        return True
    eqn = flow.maker(atom)
    return eqn is not None and not eqn.effects and all(_is_constant(flow, x) for x in eqn.invars)


def _spreads(flow: Flow, factor: Atom, scaling: JaxprEqn) -> int:
    """How many elementwise operations of the scaling's shape use ``factor``, as XLA counts."""
    if not isinstance(factor, Var):
        return 1
    shape = aval_of(scaling.outvars[0]).shape
    count = 0
    for use in flow.uses(factor):
        if use is None or [getattr(x.aval, "shape", None) for x in use.outvars] != [shape]:
            continue  # no elementwise operation, which has one result
        is_broadcast = use.primitive.name == "broadcast_in_dim"
        count += len(flow.uses(use.outvars[0])) if is_broadcast else 1
    return count
