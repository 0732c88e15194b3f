"""From accumulators to output bits, by the variants of :class:`Epilogue` (R16 to R19)."""

import dataclasses
import functools

import ml_dtypes
import numpy as np

from mmaemu_jax.epilogue import CANONICAL_NAN
from mmaemu_jax.formats import format_of
from mmaemu_jax.identify.bits import Rounding, f32, odd, two_product, two_sum
from mmaemu_jax.identify.member import Epilogue


@dataclasses.dataclass(frozen=True)
class Extras:
    """The further operands of one call; None where the GEMM does not have one.

    Attributes:
        scale_a, scale_b, scale_result, beta: float32 scalars.
        bias: float32 [N].
        c: float32 [M, N].
    """

    scale_a: np.float32 | None = None
    scale_b: np.float32 | None = None
    scale_result: np.float32 | None = None
    bias: np.ndarray | None = None
    c: np.ndarray | None = None
    beta: np.float32 | None = None

    def keywords(self) -> dict:
        """What the GEMM is called with."""
        return {k: v for k, v in vars(self).items() if v is not None}


#: Keyword operands that a GEMM may take; c comes with beta.
OPERANDS = ("scale_a", "scale_b", "scale_result", "bias", "c")


@functools.cache
def grid_of(dtype: np.dtype) -> Rounding:
    """The format to round to for an output dtype."""
    info = ml_dtypes.finfo(dtype)
    return Rounding(int(info.nmant), int(info.minexp), float(info.max))


def nan_bits(dtype: np.dtype, how: str) -> int:
    """The bits of a positive NaN by :attr:`Epilogue.nan`."""
    if how in ("canonical", "other"):
        return CANONICAL_NAN[dtype]
    quiet = int(np.array(np.nan, dtype).view(f"u{dtype.itemsize}")) & ~_sign_bit(dtype)
    return quiet | (how == "signed odd")


def _sign_bit(dtype: np.dtype) -> int:
    return 1 << (8 * dtype.itemsize - 1)


def output_bits(
    acc: np.ndarray, epilogue: Epilogue, out_dtype: np.dtype, extras: Extras, paired: bool
) -> np.ndarray:
    """Bits of the outputs, an unsigned integer array shaped as ``acc`` [..., outputs].

    ``acc`` is float64, the outputs in row-major order; with ``paired`` only the diagonal.
    """
    with np.errstate(invalid="ignore", over="ignore", under="ignore", divide="ignore"):
        y = _scaled(acc, epilogue, out_dtype, extras, paired)
        if extras.scale_result is not None and format_of(out_dtype) is not None:
            y = f32(f32(y) * float(extras.scale_result))
        return _convert(y, epilogue, out_dtype)


def _per_output(values: np.ndarray, outputs: int, paired: bool) -> np.ndarray:
    """bias [N] or c [M, N] as one value for every output."""
    wide = np.asarray(values, np.float64)
    if wide.ndim == 2:
        return wide.diagonal() if paired else wide.reshape(-1)
    return wide if paired else np.tile(wide, outputs // len(wide))


def _scaled(acc, epilogue: Epilogue, out_dtype, extras: Extras, paired: bool) -> np.ndarray:
    """The value before the output's own rounding: float64, float32's unless ``via`` is "once"."""
    a, b = (1.0 if s is None else float(s) for s in (extras.scale_a, extras.scale_b))
    once = epilogue.via == "once"
    settle = (lambda v: v) if once else f32
    acc = settle(acc)
    late = epilogue.scales == "after rounding"
    if late:
        acc = _round(acc, epilogue, out_dtype)
    if epilogue.scales == "a then b":
        acc, alpha = f32(acc * a), b
    elif epilogue.scales == "b then a":
        acc, alpha = f32(acc * b), a
    elif epilogue.scales == "once":
        acc, alpha = odd(*two_product(acc, np.full_like(acc, a))), b
    else:
        alpha = float(f32(np.asarray(a * b)))
    product, missed = two_product(acc, np.full_like(acc, alpha))
    exact = odd(product, np.where(np.isfinite(missed), missed, 0.0))
    if extras.c is not None:
        beta = 1.0 if extras.beta is None else float(extras.beta)
        c = _per_output(extras.c, acc.shape[-1], paired) * beta
        exact = odd(*two_sum(exact, c)) if epilogue.c == "fused" else f32(f32(exact) + f32(c))
    if extras.bias is not None:
        bias = _per_output(extras.bias, acc.shape[-1], paired)
        if epilogue.bias == "fused":
            exact = odd(*two_sum(exact, bias))
        elif epilogue.bias == "separate":
            exact = settle(odd(*two_sum(f32(exact), bias)))
        else:
            exact = _round(settle(exact), epilogue, out_dtype) + bias
    return settle(exact) + 0.0


def _round(y: np.ndarray, epilogue: Epilogue, out_dtype: np.dtype) -> np.ndarray:
    """``y`` on the output's grid, with overflow as its format has it."""
    for name in ("bfloat16", "float16"):
        if epilogue.via == name:
            y = _fit(grid_of(np.dtype(name)).apply(y, "nearest"), np.dtype(name))
    if out_dtype == np.float32:
        return f32(y)
    return _fit(grid_of(out_dtype).apply(y, epilogue.rounding), out_dtype, epilogue)


def _fit(y: np.ndarray, dtype: np.dtype, epilogue: Epilogue | None = None) -> np.ndarray:
    largest = grid_of(dtype).largest
    fp8 = format_of(dtype)
    if fp8 is not None and epilogue is not None and epilogue.overflow == "saturate":
        return np.where(np.isnan(y), y, np.clip(y, -largest, largest))
    beyond = np.nan if fp8 is not None and not fp8.has_infinity else np.inf
    return np.where(np.abs(y) > largest, np.copysign(beyond, y), y)


def _convert(y: np.ndarray, epilogue: Epilogue, out_dtype: np.dtype) -> np.ndarray:
    y = _round(y, epilogue, out_dtype)
    bits = y.astype(out_dtype).view(f"u{out_dtype.itemsize}")
    nan = bits.dtype.type(nan_bits(out_dtype, epilogue.nan))
    signed = np.where(np.signbit(y), bits.dtype.type(_sign_bit(out_dtype)), bits.dtype.type(0))
    return np.where(np.isnan(y), nan | signed if "signed" in epilogue.nan else nan, bits)
