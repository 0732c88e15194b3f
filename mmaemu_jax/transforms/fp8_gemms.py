"""Reading the FP8 GEMM out of an equation: this package's primitive, or JAX's dot_general."""

import dataclasses
import math

import numpy as np
from jax.extend.core import JaxprEqn
from jax.lax import DotAlgorithm, DotAlgorithmPreset, Precision

from mmaemu_jax.accumulate import AccumulationPlan
from mmaemu_jax.call import Operand, ScaledMmCall
from mmaemu_jax.formats import format_of
from mmaemu_jax.instruction import InstructionModel, get_preset, list_presets
from mmaemu_jax.primitive import GemmParams, scaled_mm_p
from mmaemu_jax.transforms.flow import aval_of, is_fp8
from mmaemu_jax.transforms.jaxpr_report import AccumulateMode, Kind


@dataclasses.dataclass(frozen=True)
class Fp8Gemm:
    """One equation's GEMM; fields as in :class:`GemmSite`, ``params`` for kind "mmaemu" only."""

    kind: Kind
    M: int
    N: int
    K: int
    batch: int
    dtype_a: np.dtype
    dtype_b: np.dtype
    out_dtype: np.dtype
    accumulate: AccumulateMode
    params: GemmParams | None = None

    def as_call(self, *, scale_result: bool) -> ScaledMmCall:
        """The scaled_mm call that computes one element of the batch, with scalar scales.

        ``scale_result`` says whether that of the result is among them.
        """
        scale = Operand((), np.dtype(np.float32))
        return ScaledMmCall(
            Operand((self.M, self.K), self.dtype_a),
            Operand((self.K, self.N), self.dtype_b),
            scale,
            scale,
            None,
            scale if scale_result else None,
            self.out_dtype,
            self.accumulate == "fast",
        )


def fp8_gemm(eqn: JaxprEqn) -> Fp8Gemm | None:
    """The GEMM of ``eqn``, or None if it is none or an operand is not FP8 (of any flavour)."""
    if eqn.primitive is scaled_mm_p:
        return _of_primitive(eqn)
    if eqn.primitive.name == "dot_general" and all(map(is_fp8, eqn.invars)):
        return dot_general_gemm(eqn, *(aval_of(var).dtype for var in eqn.invars))
    return None


def _of_primitive(eqn: JaxprEqn) -> Fp8Gemm:
    params: GemmParams = eqn.params["params"]
    a, b, out = map(aval_of, (*eqn.invars[:2], eqn.outvars[0]))
    *batch, m, n = out.shape
    mode = "slow" if params.plan.chunk_k else "fast"
    return Fp8Gemm(
        "mmaemu", m, n, a.shape[-1], math.prod(batch), a.dtype, b.dtype, out.dtype, mode, params
    )


def dot_general_gemm(eqn: JaxprEqn, dtype_a: np.dtype, dtype_b: np.dtype) -> Fp8Gemm:
    """The GEMM of ``eqn``, a dot_general whose operands are FP8 or dequantised from these types."""
    a, b, out = map(aval_of, (*eqn.invars, eqn.outvars[0]))
    (contract_a, contract_b), (batch_a, batch_b) = eqn.params["dimension_numbers"]
    return Fp8Gemm(
        "dot_general",
        _product(a.shape, excluded=(*contract_a, *batch_a)),
        _product(b.shape, excluded=(*contract_b, *batch_b)),
        math.prod(a.shape[i] for i in contract_a),
        math.prod(a.shape[i] for i in batch_a),
        dtype_a,
        dtype_b,
        _result_dtype(eqn.params["precision"], out.dtype),
        _mode_of(eqn.params["precision"]),
    )


def _product(shape: tuple, excluded: tuple[int, ...]) -> int:
    return math.prod(size for i, size in enumerate(shape) if i not in excluded)


def _mode_of(precision) -> AccumulateMode:
    """XLA's rule: fast means precision DEFAULT for both operands, or an FP8 algorithm that says so.

    An algorithm of other types computes something else than an FP8 GEMM. JAX lowers
    ANY_F8_ANY_F8_ANY_FAST_ACCUM without the permission to be imprecise, so it is slow.
    """
    if isinstance(precision, DotAlgorithmPreset) and precision is not DotAlgorithmPreset.DEFAULT:
        if not precision.name.startswith("ANY_F8_ANY_F8"):
            return "unknown"
        return "fast" if precision is DotAlgorithmPreset.ANY_F8_ANY_F8_F32_FAST_ACCUM else "slow"
    if isinstance(precision, DotAlgorithm):
        if not _is_fp8_algorithm(precision):
            return "unknown"
        return "fast" if precision.allow_imprecise_accumulation else "slow"
    operands = precision if isinstance(precision, tuple) else (precision,)
    default = all(p in (None, Precision.DEFAULT, DotAlgorithmPreset.DEFAULT) for p in operands)
    return "fast" if default else "slow"


def _is_fp8_algorithm(algorithm: DotAlgorithm) -> bool:
    types = (algorithm.lhs_precision_type, algorithm.rhs_precision_type)
    single = (
        algorithm.lhs_component_count,
        algorithm.rhs_component_count,
        algorithm.num_primitive_operations,
    )
    return (
        all(np.dtype(kind).name.startswith("float8_") for kind in types)
        and np.dtype(algorithm.accumulation_type) == np.float32
        and single == (1, 1, 1)
    )


def _result_dtype(precision, out_dtype: np.dtype) -> np.dtype:
    """What the GEMM returns: an algorithm's accumulation type, which JAX converts afterwards."""
    if isinstance(precision, DotAlgorithm | DotAlgorithmPreset):
        accumulation = precision.accumulation_type
        return out_dtype if accumulation is None else np.dtype(accumulation)
    return out_dtype


def format_name(dtype: np.dtype) -> str:
    """The short name of an FP8 format, the dtype's own name for others."""
    fp8 = format_of(dtype)
    return dtype.name if fp8 is None else fp8.name


def model_name(model: InstructionModel) -> str:
    """The preset with these numbers, or "custom"."""
    return next((n for n in list_presets() if get_preset(n).model == model), "custom")


def scheme_name(plan: AccumulationPlan) -> str:
    """The scheme of R12 and R13 that ``plan`` carries out."""
    if plan.splits == 1:
        return "none"
    if plan.interleaved:
        return "pairwise" if plan.pairwise else "serial"
    return "contiguous"
