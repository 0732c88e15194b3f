"""One member of the family: a plan, the arithmetic of its steps, and an epilogue. All data."""

import dataclasses
from typing import Any, Literal

from mmaemu_jax.accumulate import AccumulationPlan
from mmaemu_jax.errors import UnsupportedFeatureError, message
from mmaemu_jax.identify.parts import Parts
from mmaemu_jax.identify.plan import Plan
from mmaemu_jax.instruction import InstructionModel

Mode = Literal["truncate", "nearest", "floor"]


@dataclasses.dataclass(frozen=True)
class Arithmetic:
    """The numbers of a step.

    Attributes:
        frac: fraction bits of the alignment (R5).
        align: how a term is brought to the grid of R5.
        frac_out: fraction bits of a block result (R7).
        result: how a block result is brought to that grid.
        add: how partial results, and a late accumulator, are added: float32 to nearest ("f32"),
            float32 toward zero ("f32 toward zero"), "f64", or "exact" until the end.
        subnormals: an FP8 subnormal's exponent is emin ("gradual", R2), that of its leading bit
            ("normalised"), or it counts as zero ("flushed").
        zeros: whether a zero factor is "absent" from R4 or lends emin as its exponent ("lend").
        products: a product's exponent is the "sum" of its factors' (R3) or that of its leading
            bit ("normalised").
    """

    frac: int = 23
    align: Mode = "truncate"
    frac_out: int = 23
    result: Literal["truncate", "nearest"] = "truncate"
    add: Literal["f32", "f32 toward zero", "f64", "exact"] = "f32"
    subnormals: Literal["gradual", "normalised", "flushed"] = "gradual"
    zeros: Literal["absent", "lend"] = "absent"
    products: Literal["sum", "normalised"] = "sum"


@dataclasses.dataclass(frozen=True)
class Epilogue:
    """From the accumulator to the output (R16 to R19), where the GEMM has these operands.

    Attributes:
        scales: how scale_a and scale_b are applied: "alpha" multiplies by RN32(scale_a * scale_b)
            (R16, R17); "a then b" and "b then a" round after each; "once" rounds the exact
            product of all three; "after rounding" applies alpha to the output dtype's value.
        bias: added in the multiplication's rounding ("fused"), after it ("separate"), or to the
            output dtype's value ("after rounding").
        c: likewise for beta * c: "fused" rounds once, "separate" rounds the scaled accumulator
            and beta * c first.
        via: output roundings: from float32 ("float32"), straight from the unrounded value
            ("once"), or by way of "bfloat16" or "float16".
        rounding: of the last step to an output narrower than float32.
        overflow: beyond an FP8 output: "saturate" (R18) or "ieee" (Inf, or NaN without one).
        nan: the bits of a NaN: "canonical" (R19), "quiet", quiet and "signed" as x86 does, that
            with the last bit set as YNNPACK writes bfloat16 ("signed odd"), or, as a search may
            find, some "other".
    """

    scales: Literal["alpha", "a then b", "b then a", "once", "after rounding"] = "alpha"
    bias: Literal["fused", "separate", "after rounding"] = "fused"
    c: Literal["fused", "separate"] = "fused"
    via: Literal["float32", "once", "bfloat16", "float16"] = "float32"
    rounding: Literal["nearest", "truncate"] = "nearest"
    overflow: Literal["saturate", "ieee"] = "saturate"
    nan: Literal["canonical", "quiet", "signed", "signed odd", "other"] = "canonical"


@dataclasses.dataclass(frozen=True)
class Member:
    """One way to compute an FP8 GEMM; every field can be replaced on its own."""

    plan: Plan
    arithmetic: Arithmetic = Arithmetic()
    epilogue: Epilogue = Epilogue()

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Member":
        """What :meth:`to_dict` wrote."""
        plan = dict(values["plan"])
        for level in ("split", "restart", "lanes"):
            plan[level] = Parts(**plan[level])
        return cls(Plan(**plan), Arithmetic(**values["arithmetic"]), Epilogue(**values["epilogue"]))

    def __str__(self) -> str:
        return ", ".join(self.words())

    def words(self) -> list[str]:
        """The choices that differ from the plainest, one by one."""
        plan, epilogue = self.plan, self.epilogue
        words = [*_plan_words(plan), *_arithmetic_words(plan, self.arithmetic)]
        default = Epilogue()
        words += [
            f"{field.name} {getattr(epilogue, field.name)}"
            for field in dataclasses.fields(epilogue)
            if getattr(epilogue, field.name) != getattr(default, field.name)
        ]
        return words


def _plan_words(plan: Plan) -> list[str]:
    words = []
    if not plan.split.is_whole:
        way = "interleaved" if plan.split.interleaved else "contiguous"
        words.append(
            f"split-K {plan.split.count} ({way} tiles of {plan.split.tile}, {plan.split.combine})"
        )
    if not plan.restart.is_whole:
        odd = ", residue first" if plan.restart.residue == "first" else ""
        words.append(f"restart every {plan.restart.tile}{odd}")
    if plan.lanes.count > 1:
        words.append(f"{plan.lanes.count} lanes ({plan.lanes.combine})")
    elif plan.lanes.count < 0:
        words.append(f"tree over elements ({plan.lanes.combine})")
    return words


def _arithmetic_words(plan: Plan, arithmetic: Arithmetic) -> list[str]:
    odd = [
        f"{name} {value}"
        for name, value, usual in (
            ("subnormals", arithmetic.subnormals, "gradual"),
            ("zeros", arithmetic.zeros, "absent"),
            ("product exponents", arithmetic.products, "sum"),
        )
        if value != usual
    ]
    if plan.block == 1:
        swapped = ["pairs swapped"] if plan.swapped else []
        return [f"IEEE additions ({arithmetic.add})", *swapped, *odd]
    return [
        f"blocks of {plan.block}" if plan.block else "one block",
        f"{arithmetic.frac} bits {arithmetic.align}",
        f"result {arithmetic.frac_out} bits {arithmetic.result}",
        f"c late ({arithmetic.add})" if plan.late else "c early",
        *odd,
    ]


def member_of(model: InstructionModel, plan: AccumulationPlan) -> Member:
    """The member that one of this package's own GEMMs is, with the epilogue of R16 to R19.

    ``min_exp`` is left out: no FP8 product reaches it (R4).

    Raises:
        UnsupportedFeatureError: a floor of R4 that FP8 products do reach.
    """
    if model.min_exp > -33:
        raise UnsupportedFeatureError(
            message(
                f"identify: min_exp {model.min_exp} is above the exponents of FP8 products, which "
                "the family does not have.",
                ["a preset with min_exp <= -33"],
            )
        )
    split = restart = Parts()
    if plan.splits > 1:
        combine: Any = "pairwise" if plan.pairwise else "serial"
        split = Parts(plan.splits, plan.tile_k, plan.interleaved, combine)
    if plan.chunk_k:
        restart = Parts(0, plan.chunk_k)
    tree = Plan(model.nfma, model.late_c or model.nfma == 1, split, restart)
    return Member(tree, Arithmetic(model.frac, "truncate", model.frac_out))
