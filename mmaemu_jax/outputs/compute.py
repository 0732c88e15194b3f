"""A recorded GEMM computed again: the plan that a profile has for it, and its outputs."""

import jax
import numpy as np

from mmaemu_jax import host
from mmaemu_jax.accumulate import AccumulationPlan
from mmaemu_jax.call import ARRAY_TYPES
from mmaemu_jax.identify.member import Epilogue
from mmaemu_jax.identify.output import Extras, output_bits
from mmaemu_jax.instruction import InstructionModel
from mmaemu_jax.outputs.recorded import RecordedGemm
from mmaemu_jax.plan import GemmPlan
from mmaemu_jax.platforms import Profile, SplitArgument
from mmaemu_jax.prepare import prepare_scaled_mm

#: Outputs with a bias that are rounded at a time, in float64.
_OUTPUTS = 1 << 20


def plan_of(gemm: RecordedGemm, profile: Profile, splitk: SplitArgument) -> GemmPlan | None:
    """How ``profile`` computes the whole call, its bias aside; None if it is empty (R15).

    Raises:
        As :func:`mmaemu_jax.scaled_mm`.
    """
    m, n, k = gemm.shape
    prepared = prepare_scaled_mm(
        jax.ShapeDtypeStruct((m, k), gemm.a.dtype),
        jax.ShapeDtypeStruct((k, n), gemm.b.dtype),
        gemm.scale_a,
        gemm.scale_b,
        None,
        gemm.scale_result,
        gemm.out.dtype,
        gemm.use_fast_accum,
        profile=profile,
        splitk=splitk,
        backend="auto",
        array_types=(*ARRAY_TYPES, jax.ShapeDtypeStruct),
    )
    return prepared.plan


def outputs_of(gemm: RecordedGemm, model: InstructionModel, plan: AccumulationPlan) -> np.ndarray:
    """[M, N] in the output dtype: the recorded rows by these numbers.

    A bias is added to the scaled accumulator before the one rounding to float32, which no
    recording confirms.
    """
    if gemm.bias is None:
        to_fp8 = gemm.out.dtype.itemsize == 1
        return host.gemm(
            gemm.a,
            gemm.b,
            gemm.scale_a,
            gemm.scale_b,
            gemm.scale_result if to_fp8 else None,
            model=model,
            plan=plan,
            out_dtype=gemm.out.dtype,
        )
    extras = Extras(
        gemm.scale_a, gemm.scale_b, gemm.scale_result, np.asarray(gemm.bias, np.float32)
    )
    acc = host.gemm(gemm.a, gemm.b, model=model, plan=plan)
    out = np.empty(acc.shape, gemm.out.dtype)
    rows = max(1, _OUTPUTS // max(1, acc.shape[1]))
    for start in range(0, len(acc), rows):
        part = acc[start : start + rows]
        values = part.astype(np.float64).reshape(-1)
        bits = output_bits(values, Epilogue(), out.dtype, extras, paired=False)
        out[start : start + rows] = bits.view(out.dtype).reshape(part.shape)
    return out
