"""The scaling of a dot's result that XLA folds into the GEMM.

``F8ScaleD`` of XLA's FP8 rewriter: a multiplication or division of the result by a scalar becomes
the GEMM's first scale, in float32 and before the one rounding to the output dtype, if

- the GEMM's result has no other use, and reshapes and transposes between them have none either;
- the first operand brought no scale of its own;
- the broadcast scalar has no other use (XLA merges equal broadcasts before);
- no slice stands between them, so that M and N are multiples of 16.
"""

import dataclasses

from jax.extend.core import JaxprEqn, Literal, Var

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


@dataclasses.dataclass(frozen=True)
class Epilogue:
    """What follows a dot and is folded into its GEMM.

    Attributes:
        scale: the scalar that the result is scaled by, or None for nothing folded.
        divided: the scalar divides.
        scaling: the equation that scales, None likewise.
        between: rearrangements from the dot's result to ``scaling``, in order.
        note: what XLA would do besides, or why nothing is folded; "" if there is nothing to say.
    """

    scale: Atom | None = None
    divided: bool = False
    scaling: JaxprEqn | None = None
    between: tuple[JaxprEqn, ...] = ()
    note: str = ""


def match_epilogue(
    flow: Flow, dot: JaxprEqn, *, aligned: bool, scaled_a: bool, scaled_b: bool
) -> Epilogue:
    """What XLA folds into the GEMM of ``dot``.

    Args:
        flow: of the jaxpr that holds ``dot``.
        dot: the dot_general.
        aligned: M and N are multiples of 16.
        scaled_a, scaled_b: the operand brought a scale of its own.
    """
    value, between = dot.outvars[0], []
    eqn = flow.only_use(value)
    while eqn is not None and eqn.primitive.name in REARRANGEMENTS | TRANSPARENT:
        between.append(eqn)
        value = eqn.outvars[0]
        eqn = flow.only_use(value)
    if eqn is None:
        return Epilogue()
    name = eqn.primitive.name
    factor = scalar_factor(flow, eqn) if name in ("mul", "div") else None
    if factor is None or factor.scaled is not value:
        return Epilogue(note=_FOLDED_ELSEWHERE.get(name, ""))
    note = _why_not_folded(flow, factor, eqn, aligned, scaled_a, scaled_b)
    if note:
        return Epilogue(note=note)
    after = flow.only_use(eqn.outvars[0])
    note = _FOLDED_ELSEWHERE.get(after.primitive.name, "") if after is not None else ""
    return Epilogue(factor.factor, name == "div", eqn, tuple(between), note)


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
        if use is None or aval_of(use.outvars[0]).shape != shape:
            continue
        is_broadcast = use.primitive.name == "broadcast_in_dim"
        count += len(flow.uses(use.outvars[0])) if is_broadcast else 1
    return count
