"""scaled_mm's refusals, in torch's order (R20, R21). Only shapes and dtypes are looked at.

A refused call gets the class of whoever refuses it: torch 2.7.1 or the library behind it
(ReferenceRejectsError), or this package (UnsupportedFeatureError).
"""

import ml_dtypes
import numpy as np

from mmaemu_jax.arguments import FP8_NAMES, OUTPUT_NAMES
from mmaemu_jax.call import ScaledMmCall
from mmaemu_jax.epilogue import OUTPUT_DTYPES
from mmaemu_jax.errors import ReferenceRejectsError, UnsupportedFeatureError, message
from mmaemu_jax.formats import E4M3, E5M2, FOREIGN_FP8_DTYPES, Fp8Format
from mmaemu_jax.platforms import Profile

_FLOAT32 = np.dtype(np.float32)
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_FLOAT16 = np.dtype(np.float16)


def _rejects(what: str, *ways_out: str) -> ReferenceRejectsError:
    return ReferenceRejectsError(message(f"scaled_mm: {what}", ways_out))


def _unsupported(what: str, *ways_out: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(message(f"scaled_mm: {what}", ways_out))


# What torch checks before anything else.


def _matrices(call: ScaledMmCall) -> None:
    if len(call.input.shape) != 2 or len(call.mat2.shape) != 2:
        raise _rejects(
            f"input and mat2 must be matrices [M, K] and [K, N], got {call.input} and {call.mat2}.",
            "fold leading dimensions into M with reshape",
            "use jax.vmap for a batch of GEMMs",
        )


def _contraction(call: ScaledMmCall) -> None:
    if call.input.shape[1] != call.mat2.shape[0]:
        raise _rejects(
            f"input [M, K] and mat2 [K, N] must have the same K, got {call.input} and {call.mat2}.",
            "mat2 is [K, N]: pass w.T for a weight w of shape [N, K]",
        )


def _scales(call: ScaledMmCall) -> None:
    a, b = call.scale_a, call.scale_b
    if a.dtype != _FLOAT32 or b.dtype != _FLOAT32:
        raise _rejects(
            f"scale_a and scale_b must be float32, got {a} and {b}.",
            "convert with jnp.asarray(scale, jnp.float32) or np.float32(scale)",
            "pass a Python float, which is taken as float32",
        )
    if call.rowwise and not (a.shape == (call.M, 1) and b.shape == (1, call.N)):
        raise _rejects(
            f"scale_a and scale_b must have one element each (or be row-wise, "
            f"[{call.M}, 1] and [1, {call.N}]), got {a} and {b}.",
            "pass one scale per tensor",
        )


def _scale_result(call: ScaledMmCall) -> None:
    scale = call.scale_result
    if scale is not None and (scale.dtype != _FLOAT32 or scale.size != 1):
        raise _rejects(
            f"scale_result must be one float32 element, got {scale}.",
            "pass a Python float or jnp.float32(scale)",
            "leave scale_result out",
        )


def _bias_size(call: ScaledMmCall) -> None:
    if call.bias is not None and call.bias.size != call.N:
        raise _rejects(
            f"bias must have N = {call.N} elements, got {call.bias}.",
            "leave bias out and add it to the result",
        )


def _divisible(call: ScaledMmCall) -> None:
    for name, dim in (("K", call.K), ("N", call.N)):
        if dim % 16 != 0:
            raise _rejects(
                f"{name} must be a multiple of 16, got {name} = {dim} from input {call.input} and "
                f"mat2 {call.mat2}.",
                f"pad {name} with zeros" + (" and slice the result" if name == "N" else ""),
                "mmaemu_jax.accumulate takes any shape",
                f"write a symbolic {name} as a multiple of 16, such as '16*{name.lower()}'",
            )


def _float8(call: ScaledMmCall) -> None:
    for name, operand in (("input", call.input), ("mat2", call.mat2)):
        if operand.fp8_format is None and operand.dtype not in FOREIGN_FP8_DTYPES:
            raise _rejects(
                f"{name} must be {FP8_NAMES}, got {operand}.",
                "convert it with mmaemu_jax.quantize(x, dtype, scale)",
            )


def _not_both_e5m2(call: ScaledMmCall) -> None:
    if call.input.dtype == E5M2.dtype and call.mat2.dtype == E5M2.dtype:
        raise _rejects(
            f"float8_e5m2 times float8_e5m2 is not supported, got {call.input} and {call.mat2}.",
            "quantize one of them to float8_e4m3fn",
            "mmaemu_jax.accumulate multiplies them",
        )


def _bias_dtype(call: ScaledMmCall) -> None:
    if call.bias is None:
        return
    wanted = {_BFLOAT16: (_BFLOAT16,), _FLOAT16: (_FLOAT16,), _FLOAT32: ()}
    allowed = wanted.get(call.out_dtype, (_BFLOAT16, _FLOAT16))
    if call.bias.dtype not in allowed:
        names = " or ".join(d.name for d in allowed) or "left out"
        raise _rejects(
            f"bias must be {names} for {call.out_dtype.name} output, got {call.bias}.",
            "leave bias out and add it to the result",
        )


TORCH_CHECKS = (
    _matrices,
    _contraction,
    _scales,
    _scale_result,
    _bias_size,
    _divisible,
    _float8,
    _not_both_e5m2,
    _bias_dtype,
)


def check_torch(call: ScaledMmCall) -> None:
    """torch's argument checks, in its order; an empty GEMM returns after them (R15)."""
    for check in TORCH_CHECKS:
        check(call)


# What the library behind torch, or the profile, refuses once there is something to multiply.


def _rowwise(call: ScaledMmCall) -> None:
    if call.rowwise and not (call.out_dtype == _BFLOAT16 and call.mat2.dtype == E4M3.dtype):
        raise _rejects(
            f"row-wise scales need a float8_e4m3fn mat2 and bfloat16 output, got mat2 {call.mat2} "
            f"and {call.out_dtype.name} output.",
            "pass one scale per tensor",
        )


def _multiplied_formats(call: ScaledMmCall) -> tuple[Fp8Format, Fp8Format]:
    a, b = call.input.fp8_format, call.mat2.fp8_format
    if a is None or b is None:
        raise _rejects(
            f"cuBLASLt multiplies only {FP8_NAMES}, got input {call.input} and mat2 {call.mat2}.",
            "quantize to float8_e4m3fn or float8_e5m2",
        )
    return a, b


def _output(call: ScaledMmCall) -> None:
    if call.out_dtype not in OUTPUT_DTYPES:
        raise _rejects(
            f"out_dtype must be one of {OUTPUT_NAMES}, got {call.out_dtype.name}.",
            "pass out_dtype=jnp.float32 and convert the result",
        )


def check_library(call: ScaledMmCall, profile: Profile) -> tuple[Fp8Format, Fp8Format]:
    """What cuBLASLt and ``profile`` refuse of a non-empty GEMM; returns its formats."""
    _rowwise(call)
    a, b = _multiplied_formats(call)
    _output(call)
    if (a.name, b.name, call.out_dtype.name) in profile.rejects:
        raise _rejects(
            f"profile {profile.name!r} refuses {a.name} x {b.name} -> {call.out_dtype.name} "
            f"(input {call.input}, mat2 {call.mat2}), as {profile.library} does.",
            "use another out_dtype",
            "make one operand the other FP8 format",
        )
    return a, b


def check_modelled(call: ScaledMmCall) -> None:
    """What the reference platform computes and this package does not model."""
    if call.bias is not None:
        raise _unsupported(
            f"bias (got {call.bias}) is not modelled.",
            "leave bias out and add it to the result, which rounds differently",
        )
    if call.rowwise:
        raise _unsupported(
            f"row-wise scales (got {call.scale_a} and {call.scale_b}) are not modelled: torch "
            "computes them by another library.",
            "pass one scale per tensor",
        )
