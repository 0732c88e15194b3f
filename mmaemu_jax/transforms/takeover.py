"""What emulate does with one dot_general: take it over, leave it and say why, or not look at it.

Taken over is what XLA's FP8 rewriter makes an FP8 GEMM of: FP8 operands, or operands dequantised
from FP8 by a scalar, an output dtype of cuBLASLt, and an accumulation that the precision decides.
"""

import dataclasses
from typing import Literal

from jax.extend.core import JaxprEqn

from mmaemu_jax.contraction import Contraction
from mmaemu_jax.errors import MmaemuError, SplitKUnknownError
from mmaemu_jax.formats import FORMATS
from mmaemu_jax.plan import GemmPlan, plan_scaled_mm
from mmaemu_jax.platforms import Profile, SplitArgument
from mmaemu_jax.transforms.device_sums import Spread, spread_contraction
from mmaemu_jax.transforms.flow import Flow, aval_of, is_fp8
from mmaemu_jax.transforms.fp8_epilogues import Epilogue, match_epilogue
from mmaemu_jax.transforms.fp8_gemms import Fp8Gemm, dot_general_gemm, format_name
from mmaemu_jax.transforms.fp8_operands import Fp8Operand, match_operand

EpilogueMode = Literal["xla", "jaxpr"]
OnUnsupported = Literal["warn", "raise"]

#: XLA pads the dimensions of an FP8 GEMM to multiples of this.
ALIGNMENT = 16


@dataclasses.dataclass(frozen=True)
class EmulationOptions:
    """The options of :func:`emulate`, checked."""

    profile: Profile
    splitk: SplitArgument
    use_fast_accum: bool | None
    epilogue: EpilogueMode
    backend: str
    on_unsupported: OnUnsupported
    contraction: Contraction


@dataclasses.dataclass(frozen=True)
class Takeover:
    """A dot that becomes an emulated GEMM.

    Attributes:
        gemm: formats, dimensions, output dtype and accumulation mode of the GEMM.
        padded: (M, N, K) as the library sees them.
        a, b: the operands.
        epilogue: what is folded.
        plan: split-K decision and accumulation.
        spread: how K is contracted if it is spread over devices.
    """

    gemm: Fp8Gemm
    padded: tuple[int, int, int]
    a: Fp8Operand
    b: Fp8Operand
    epilogue: Epilogue
    plan: GemmPlan
    spread: Spread

    @property
    def absorbed(self) -> tuple[JaxprEqn, ...]:
        """The equations after the dot that it does, or that move with it, in order."""
        total = self.spread.taken
        return (*self.epilogue.absorbed, *(() if total is None else (*total.between, total.eqn)))

    @property
    def rearrangements(self) -> tuple[JaxprEqn, ...]:
        """Those of ``absorbed`` that only rearrange the result."""
        total = self.spread.taken
        return (*self.epilogue.moves, *(() if total is None else total.between))


@dataclasses.dataclass(frozen=True)
class Refusal:
    """Why an FP8 dot is left alone; ``error`` is to be raised whatever the caller tolerates."""

    reason: str
    error: Exception | None = None


def consider(flow: Flow, dot: JaxprEqn, options: EmulationOptions) -> Takeover | Refusal | None:
    """What to do with ``dot``; None: it is no product of FP8 values, or empty (R15)."""
    operands = [match_operand(flow, atom) for atom in dot.invars]
    if any(operand is None for operand in operands):
        return None
    for side, operand in zip(("first", "second"), operands, strict=True):
        if isinstance(operand, str):
            return Refusal(f"the {side} operand comes from FP8, but {operand}")
    a, b = (operand for operand in operands if isinstance(operand, Fp8Operand))
    gemm = dot_general_gemm(dot, aval_of(a.source).dtype, aval_of(b.source).dtype)
    if any(dim == 0 for dim in (gemm.M, gemm.N, gemm.K, gemm.batch)):
        return None
    return _planned(flow, dot, a, b, gemm, options)


def _planned(
    flow: Flow,
    dot: JaxprEqn,
    a: Fp8Operand,
    b: Fp8Operand,
    gemm: Fp8Gemm,
    options: EmulationOptions,
) -> Takeover | Refusal:
    if gemm.accumulate == "unknown":
        return Refusal("the algorithm of its precision is not one of FP8")
    if not all(map(is_fp8, dot.invars)) and _names_algorithm(dot):
        return Refusal("its operands are dequantised and its precision names an algorithm")
    if options.use_fast_accum is not None:
        gemm = dataclasses.replace(gemm, accumulate="fast" if options.use_fast_accum else "slow")
    epilogue = _epilogue(flow, dot, a, b, gemm, options)
    spread = spread_contraction(flow, dot, epilogue, options.contraction)
    if isinstance(spread, Exception):
        return Refusal(str(spread), spread)
    if spread.is_reduced_first and epilogue.absorbed:
        epilogue = Epilogue(note="nothing is folded: the partial results are reduced before")
    out_dtype = gemm.out_dtype if epilogue.fp8 is None else epilogue.fp8
    gemm = dataclasses.replace(gemm, K=spread.own_k(gemm.K), out_dtype=out_dtype)
    padded = _aligned(gemm.M), _aligned(gemm.N), _aligned(gemm.K)
    m, n, k = padded
    aligned = dataclasses.replace(gemm, M=m, N=n, K=k)
    call = aligned.as_call(scale_result=epilogue.fp8 is not None)
    try:
        plan = plan_scaled_mm(call, options.profile, options.splitk)
    except SplitKUnknownError as error:
        return Refusal(str(error), error)
    except MmaemuError as error:
        what, _, _ = str(error).partition(" Ways out: ")
        return Refusal(what.removeprefix("scaled_mm: ").rstrip("."))
    assert plan is not None, "an empty GEMM was sorted out before"
    return Takeover(gemm, padded, a, b, epilogue, plan, spread)


def _epilogue(
    flow: Flow, dot: JaxprEqn, a: Fp8Operand, b: Fp8Operand, gemm: Fp8Gemm, options
) -> Epilogue:
    if options.epilogue == "jaxpr" or gemm.out_dtype != aval_of(dot.outvars[0]).dtype:
        return Epilogue()
    is_aligned = (_aligned(gemm.M), _aligned(gemm.N)) == (gemm.M, gemm.N)
    formats = format_name(gemm.dtype_a), format_name(gemm.dtype_b)
    return match_epilogue(
        flow,
        dot,
        aligned=is_aligned,
        scaled_a=a.scale is not None,
        scaled_b=b.scale is not None,
        fp8_outputs=tuple(
            fp8 for fp8 in FORMATS if (*formats, fp8.dtype.name) not in options.profile.rejects
        ),
    )


def _names_algorithm(dot: JaxprEqn) -> bool:
    return hasattr(dot.params["precision"], "accumulation_type")


def _aligned(dim):
    return -(-dim // ALIGNMENT) * ALIGNMENT
