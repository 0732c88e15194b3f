"""scaled_mm, accumulate and dot: validate, plan, compute.

Each stage hands a small frozen result to the next, so that explaining a call is the same code
stopped before the last stage.
"""

import contextlib
import math

import jax
import jax.numpy as jnp
import numpy as np

from mmaemu_jax import primitive
from mmaemu_jax.accumulate import ONE_CHAIN
from mmaemu_jax.arguments import name_argument
from mmaemu_jax.backends import check_backend
from mmaemu_jax.formats import format_of
from mmaemu_jax.instruction import Preset, preset_argument
from mmaemu_jax.notices import issue
from mmaemu_jax.operands import dot_operands, scale_array
from mmaemu_jax.plan import experimental_notices
from mmaemu_jax.platforms import Profile, SplitArgument
from mmaemu_jax.prepare import prepare_accumulate, prepare_scaled_mm

_FLOAT32 = np.dtype(np.float32)


def scaled_mm(
    input,
    mat2,
    scale_a,
    scale_b,
    bias=None,
    scale_result=None,
    out_dtype=None,
    use_fast_accum=False,
    *,
    profile: str | Profile | None = None,
    splitk: SplitArgument = "auto",
    backend: str = "auto",
) -> jax.Array:
    """What ``torch._scaled_mm`` of torch 2.7.1 returns on the profile's GPU, bit for bit.

    Args:
        input: FP8 [M, K].
        mat2: FP8 [K, N]; K and N are multiples of 16, and not both operands are E5M2.
        scale_a, scale_b: tensor-wise scales (R16): float32 of one element, or Python floats.
        bias: must be None (refused as R20 says).
        scale_result: likewise a scale, of an FP8 output; ignored for other outputs (R18).
        out_dtype: float32, bfloat16, float16, float8_e4m3fn or float8_e5m2; None is input's.
        use_fast_accum: fast accumulation (R10), else slow (R11).
        profile: whose bits: a name, a :class:`Profile`, or None for the default.
        splitk: how K is split: "auto" (what the profile's cuBLAS is known to do), "table",
            "auto_or_unsplit", "live", 1, (S, scheme) or a :class:`SplitK`.
        backend: who computes it; every backend gives the same bits.

    Returns:
        [M, N] in out_dtype. An empty GEMM is zeros (R15).

    Raises:
        TypeError, ValueError: a wrong Python type or option value.
        ReferenceRejectsError: torch or the profile's cuBLAS rejects the call (R20, R21).
        UnsupportedFeatureError: accepted there, not modelled here; also under differentiation.
        SplitKUnknownError: ``splitk="auto"`` does not know this GEMM.
        BackendUnavailableError: the backend cannot run here.
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
    )
    call, plan = prepared.call, prepared.plan
    if plan is None:
        return _zeros((call.M, call.N), call.out_dtype)
    issue(plan.notices)
    to_fp8 = format_of(call.out_dtype) is not None
    return primitive.bind(
        jnp.asarray(input),
        jnp.asarray(mat2),
        scale_array(scale_a),
        scale_array(scale_b),
        scale_array(scale_result) if scale_result is not None and to_fp8 else None,
        model=plan.model,
        plan=plan.accumulation,
        out_dtype=call.out_dtype,
        b_layout="kn",
        backend=backend,
    )


def accumulate(
    a,
    b,
    *,
    use_fast_accum: bool,
    profile: str | Profile | None = None,
    splitk: SplitArgument = "auto",
    backend: str = "auto",
    out_dtype_for_split=jnp.float32,
) -> jax.Array:
    """The float32 accumulator of ``a @ b.T`` before any scale (R10 to R14), of any shape (R22).

    Args:
        a: FP8 [M, K].
        b: FP8 [N, K].
        use_fast_accum: fast or slow accumulation; there is no default.
        profile, splitk, backend: as in :func:`scaled_mm`.
        out_dtype_for_split: the output dtype that "auto" looks the split up for.

    Returns:
        float32 [M, N].

    Raises:
        TypeError: operands that are not FP8 arrays, other wrong Python types.
        ValueError: shapes that do not fit, an unknown option value.
        UnsupportedFeatureError, SplitKUnknownError, BackendUnavailableError: as scaled_mm.
    """
    prepared = prepare_accumulate(
        a, b, use_fast_accum, profile, splitk, backend, out_dtype_for_split
    )
    plan = prepared.plan
    if prepared.is_empty:
        return _zeros(prepared.shape, _FLOAT32)
    issue(plan.notices)
    one = jnp.ones((), jnp.float32)
    return primitive.bind(
        jnp.asarray(a),
        jnp.asarray(b),
        one,
        one,
        model=plan.model,
        plan=plan.accumulation,
        out_dtype=_FLOAT32,
        b_layout="nk",
        backend=backend,
    )


def dot(
    a, b, c=None, *, preset: str | Preset = "ada", fmt=None, backend: str = "auto"
) -> jax.Array:
    """The instruction model itself: c plus the sum of a * b over K as one chain (R3 to R9).

    Args:
        a, b: FP8 [..., K] of equal shape (nothing broadcasts); with ``fmt`` also concrete
            floating-point arrays that hold FP8 values exactly.
        c: float32 [...], where the chain starts; None is +0.
        preset: a name or a :class:`Preset`; "ada" by default, whatever the default profile is.
        fmt: the format of a and b ("e4m3", "e5m2" or a dtype), or a pair of formats.
        backend: as in :func:`scaled_mm`.

    Returns:
        float32 [...]; non-finite inputs as R14 says.

    Raises:
        TypeError: operands that are not FP8 (or, with fmt, not concrete), c not float32.
        ValueError: shapes that differ, an unknown option value, a value that fmt does not hold.
        BackendUnavailableError: the backend cannot run here.
    """
    name_argument("dot", "backend", backend)
    arithmetic = preset_argument("dot", preset)
    operands = dot_operands("dot", a, b, c, fmt)
    check_backend("dot", backend)
    lead = operands.a.shape[:-1]
    if math.prod(lead) == 0:
        return _zeros(lead, _FLOAT32)
    issue(experimental_notices("dot", "preset", arithmetic))
    one = jnp.ones((1,) * len(lead), jnp.float32)
    # Each dot is a GEMM of its own, and the leading dimensions stay apart: each can be sharded.
    result = primitive.bind(
        operands.a[..., None, :],
        operands.b[..., None, :],
        one,
        one,
        None,
        None if operands.c is None else operands.c[..., None, None],
        model=arithmetic.model,
        plan=ONE_CHAIN,
        out_dtype=_FLOAT32,
        b_layout="nk",
        backend=backend,
    )
    return jnp.squeeze(result, (-2, -1))


def _zeros(shape: tuple, dtype: np.dtype) -> jax.Array:
    with jax.enable_x64(True) if dtype.itemsize >= 8 else contextlib.nullcontext():
        return jnp.zeros(shape, dtype)
