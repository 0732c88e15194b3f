"""The GEMMs on numpy arrays, straight through the native module: no JAX runtime is involved.

Safe where a JAX computation is not: inside ``jax.pure_callback`` and ``io_callback``, in threads
and forked workers, in programs that never start a backend. The kernels set their own
floating-point environment, so XLA's flushing of subnormals does not reach them, and the GIL is
released while they run. The bits are those of the functions of the same name.
"""

import math
import os
from typing import Any, Literal

import numpy as np

from mmaemu_jax import _native
from mmaemu_jax.accumulate import ONE_CHAIN, AccumulationPlan
from mmaemu_jax.arguments import (
    is_one_of,
    name_argument,
    output_dtype_argument,
    type_name,
)
from mmaemu_jax.backends import check_backend, cpu_kernel
from mmaemu_jax.call import array_operand, scale_operand
from mmaemu_jax.errors import BackendUnavailableError, message
from mmaemu_jax.formats import format_of
from mmaemu_jax.instruction import InstructionModel, Preset, preset_argument
from mmaemu_jax.notices import issue
from mmaemu_jax.operands import dot_operands, float32_value, fp8_operand
from mmaemu_jax.plan import experimental_notices
from mmaemu_jax.platforms import Profile, SplitArgument
from mmaemu_jax.prepare import prepare_accumulate, prepare_scaled_mm

_ARRAYS = (np.ndarray, np.generic)
#: Far more than any machine has; each but one is started where there is work for it.
MAX_THREADS = 1 << 16


def scaled_mm(
    input: np.ndarray,
    mat2: np.ndarray,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
    *,
    profile: str | Profile | None = None,
    splitk: SplitArgument = "auto",
    backend: str = "auto",
    threads: int | None = None,
) -> np.ndarray:
    """:func:`mmaemu_jax.scaled_mm` on numpy arrays: the same arguments, checks, errors and bits.

    Args:
        input, ..., splitk: as there; arrays must be numpy's.
        backend: "auto", "cpu" or a kernel such as "cpu:avx2".
        threads: how many threads compute; None is one for every CPU.

    Returns:
        [M, N] in out_dtype.
    """
    prepared = prepare_scaled_mm(
        input,
        mat2,
        scale_a,
        scale_b,
        bias,
        scale_result,
        out_dtype,
        use_fast_accum,
        profile=profile,
        splitk=splitk,
        backend=backend,
        array_types=_ARRAYS,
    )
    call, plan = prepared.call, prepared.plan
    if plan is None:
        return np.zeros((call.M, call.N), call.out_dtype)
    issue(plan.notices)
    to_fp8 = format_of(call.out_dtype) is not None
    return gemm(
        input,
        mat2,
        float32_value(scale_a),
        float32_value(scale_b),
        float32_value(scale_result) if scale_result is not None and to_fp8 else None,
        model=plan.model,
        plan=plan.accumulation,
        out_dtype=call.out_dtype,
        b_layout="kn",
        backend=backend,
        threads=threads,
    )


def accumulate(
    a: np.ndarray,
    b: np.ndarray,
    *,
    use_fast_accum: bool,
    profile: str | Profile | None = None,
    splitk: SplitArgument = "auto",
    backend: str = "auto",
    out_dtype_for_split: Any = np.float32,
    threads: int | None = None,
) -> np.ndarray:
    """:func:`mmaemu_jax.accumulate` on numpy arrays, a [M, K] and b [N, K]; float32 [M, N]."""
    prepared = prepare_accumulate(
        a, b, use_fast_accum, profile, splitk, backend, out_dtype_for_split, array_types=_ARRAYS
    )
    if prepared.is_empty:
        return np.zeros(prepared.shape, np.float32)
    plan = prepared.plan
    issue(plan.notices)
    return gemm(a, b, model=plan.model, plan=plan.accumulation, backend=backend, threads=threads)


def dot(
    a: np.ndarray,
    b: np.ndarray,
    c: Any = None,
    *,
    preset: str | Preset = "ada",
    fmt: Any = None,
    backend: str = "auto",
    threads: int | None = None,
) -> np.ndarray:
    """:func:`mmaemu_jax.dot` on numpy arrays, a and b [..., K] alike, c [...]; float32 [...]."""
    arithmetic = preset_argument("dot", preset)
    operands = dot_operands("dot", a, b, c, fmt, asarray=np.asarray, array_types=_ARRAYS)
    *lead, k = operands.a.shape
    n = math.prod(lead)
    if n == 0:
        return np.zeros(tuple(lead), np.float32)
    issue(experimental_notices("dot", "preset", arithmetic))
    result = gemm(
        operands.a.reshape(n, 1, k),
        operands.b.reshape(n, 1, k),
        c=None if operands.c is None else operands.c.reshape(n, 1, 1),
        model=arithmetic.model,
        backend=backend,
        threads=threads,
    )
    return result.reshape(tuple(lead))


def block_step(
    a: np.ndarray, b: np.ndarray, c: Any = None, *, preset: str | Preset = "ada", fmt: Any = None
) -> np.ndarray:
    """One block step (R3 to R8): :func:`dot` for at most ``nfma`` products.

    Raises:
        ValueError: more products than the preset's block has.
    """
    arithmetic = preset_argument("block_step", preset)
    products = np.shape(a)[-1] if np.ndim(a) else 0
    if products > arithmetic.nfma:
        raise ValueError(
            message(
                f"block_step: a block of preset {arithmetic.name!r} has at most "
                f"{arithmetic.nfma} products, got {products}.",
                ["mmaemu_jax.host.dot runs a whole chain"],
            )
        )
    return dot(a, b, c, preset=arithmetic, fmt=fmt)


def gemm(
    a: np.ndarray,
    b: np.ndarray,
    scale_a: Any = 1.0,
    scale_b: Any = 1.0,
    scale_result: Any = None,
    c: np.ndarray | None = None,
    *,
    model: InstructionModel,
    plan: AccumulationPlan = ONE_CHAIN,
    out_dtype: Any = np.float32,
    b_layout: Literal["nk", "kn"] = "nk",
    backend: str = "auto",
    threads: int | None = None,
) -> np.ndarray:
    """Any GEMM of R3 to R19 from its numbers: a model and a plan instead of a profile.

    Args:
        a: float8 [*L, M, K].
        b: float8 [*L, N, K], or [*L, K, N] with ``b_layout="kn"``.
        scale_a, scale_b, scale_result: float32 [*L] or scalars (R16 to R18).
        c: float32 [*L, M, N], where a one-chain plan starts.
        model, plan: the numbers.
        out_dtype: one of the five of R18.
        backend, threads: as in :func:`scaled_mm`.

    Returns:
        [*L, M, N]; every leading dimension of an operand is 1 or the result's.

    Raises:
        TypeError: operands that are not numpy arrays of FP8, a c that is not float32, other wrong
            Python types.
        ValueError: shapes that do not fit, an unknown option value.
        BackendUnavailableError: the backend is not a CPU kernel that runs here.
        MemoryError: no memory for the result, or for the panels of a tile.
    """
    _check_kernel(backend)
    dtype = output_dtype_argument("gemm", "out_dtype", out_dtype)
    _check_numbers(model, plan, threads)
    for name, value in (("a", a), ("b", b)):
        fp8_operand("gemm", name, value, _ARRAYS)
    if c is not None and array_operand("gemm", "c", c, _ARRAYS).dtype != np.float32:
        raise TypeError(message(f"gemm: c must be float32, got {c.dtype}.", ["leave c out for +0"]))
    if not is_one_of(b_layout, ("nk", "kn")) or a.ndim < 2 or b.ndim != a.ndim:
        raise ValueError(
            message(
                f"gemm: a {a.shape} and b {b.shape} do not fit with b_layout {b_layout!r}.",
                ["b_layout='nk' for b [*L, N, K], 'kn' for [*L, K, N]"],
            )
        )
    leading = a.ndim - 2
    scales = [_scale("scale_a", scale_a, leading), _scale("scale_b", scale_b, leading)]
    if scale_result is not None:
        scales.append(_scale("scale_result", scale_result, leading))
    given = (a, b, *scales, *([] if c is None else [c]))
    operands = [np.require(x, requirements=("C_CONTIGUOUS", "ALIGNED")) for x in given]
    try:
        batch = np.broadcast_shapes(*(x.shape[:leading] for x in operands))
    except ValueError as error:
        shapes = ", ".join(str(x.shape[:leading]) for x in operands)
        raise ValueError(
            message(
                f"gemm: leading dimensions {shapes} do not fit.",
                ["each is 1 or the result's, on every operand and scale"],
            )
        ) from error
    n = b.shape[-2] if b_layout == "nk" else b.shape[-1]
    out = np.empty((*batch, a.shape[-2], n), dtype)
    try:
        _native.host_gemm(
            operands=[(_bits(x), x.dtype.name) for x in operands],
            out=_bits(out),
            out_dtype=dtype.name,
            model=(model.nfma, model.frac, model.frac_out, model.min_exp),
            late_c=model.late_c,
            plan=(plan.chunk_k, plan.splits, plan.tile_k),
            interleaved=plan.interleaved,
            pairwise=plan.pairwise,
            b_layout=b_layout,
            kernel=cpu_kernel(backend),
            has_scale_result=scale_result is not None,
            has_c=c is not None,
            threads=os.cpu_count() or 1 if threads is None else int(threads),
        )
    except ValueError as error:  # shapes that the handlers of JAX check, too
        raise ValueError(f"gemm: {str(error).removeprefix('mmaemu_jax: ')}") from error
    return out


def _check_kernel(backend: str) -> None:
    name_argument("gemm", "backend", backend)
    if not (backend in ("auto", "cpu") or backend.startswith("cpu:")):
        raise BackendUnavailableError(
            message(
                f"gemm: backend {backend!r} is not a CPU kernel, and numpy arrays are computed by "
                "nothing else.",
                ["backend='auto'", "the function of the same name in mmaemu_jax"],
            )
        )
    check_backend("gemm", backend)


def _check_numbers(model, plan, threads) -> None:
    for name, value, kind in (("model", model, InstructionModel), ("plan", plan, AccumulationPlan)):
        if not isinstance(value, kind):
            raise TypeError(
                message(
                    f"gemm: {name} must be a {kind.__name__}, got {type_name(value)}.",
                    ["mmaemu_jax.get_preset(...).model", "scaled_mm and accumulate take a profile"],
                )
            )
    if threads is None:
        return
    if isinstance(threads, bool) or not isinstance(threads, int | np.integer):
        raise TypeError(f"gemm: threads must be an int or None, got {threads!r}.")
    if not 1 <= threads <= MAX_THREADS:
        raise ValueError(f"gemm: threads must be in 1..{MAX_THREADS}, got {threads}.")


def _scale(name: str, value: Any, leading: int) -> np.ndarray:
    of_scale = scale_operand("gemm", name, value, _ARRAYS)
    if of_scale.dtype != np.float32:
        raise TypeError(
            message(f"gemm: {name} must be float32, got {of_scale}.", ["np.float32(scale)"])
        )
    scale = np.asarray(float32_value(value))
    return scale.reshape((1,) * leading) if scale.size == 1 else scale


def _bits(x: np.ndarray) -> np.ndarray:
    return x.view(f"u{x.dtype.itemsize}")
