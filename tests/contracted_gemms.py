"""A whole GEMM contracted over devices, checked and decided as scaled_mm's are: for the tests."""

import jax
import jax.numpy as jnp

from mmaemu_jax import primitive
from mmaemu_jax.arguments import flag_argument, output_dtype_argument
from mmaemu_jax.backends import check_backend
from mmaemu_jax.contraction import ContractionArgument, contract
from mmaemu_jax.errors import message
from mmaemu_jax.formats import format_of
from mmaemu_jax.notices import issue
from mmaemu_jax.operands import float32_array, fp8_operand
from mmaemu_jax.plan import plan_gemm
from mmaemu_jax.platforms import Profile, SplitArgument, SplitQuery, parse_splitk, profile_argument


def contracted_gemm(
    a,
    b,
    scale_a,
    scale_b,
    scale_result=None,
    *,
    out_dtype,
    use_fast_accum: bool,
    profile: str | Profile | None = None,
    splitk: SplitArgument = "auto",
    backend: str = "auto",
    contraction: ContractionArgument = "gather",
    function: str = "contracted_gemm",
) -> jax.Array:
    """An FP8 GEMM ``a @ b.T`` with scales (R16 to R18), contracted as ``contraction`` says.

    Split-K is decided at the shape of each GEMM that is computed: with "per_device" that of a
    slice, whose epilogue gives out_dtype before the reduction. Shapes are not restricted to
    multiples of 16 (R22).

    Args:
        a: FP8 (*L, M, K).
        b: FP8 (*L, N, K); leading dimensions are 1 or those of a.
        scale_a, scale_b, scale_result: float32 (*L), each dimension 1 or that of the result;
            scale_result is for FP8 outputs, or None.
        out_dtype: one of the five output dtypes (R18).
        use_fast_accum, profile, splitk, backend: as in scaled_mm.
        contraction: a mode or a :class:`Contraction`.
        function: the caller that messages name.

    Returns:
        (*L, M, N) in out_dtype.

    Raises:
        TypeError, ValueError: operands, shapes or options that do not fit; see :func:`contract`.
        UnsupportedFeatureError, SplitKUnknownError, BackendUnavailableError: as scaled_mm.
    """
    _, format_a = fp8_operand(function, "a", a)
    _, format_b = fp8_operand(function, "b", b)
    dtype = output_dtype_argument(function, "out_dtype", out_dtype)
    fast = flag_argument(function, "use_fast_accum", use_fast_accum)
    platform = profile_argument(function, profile)
    request = parse_splitk(function, splitk, platform)
    check_backend(function, backend)
    if not 2 <= a.ndim == b.ndim or a.shape[-1] != b.shape[-1]:
        raise ValueError(
            message(
                f"{function}: a and b must be (*L, M, K) and (*L, N, K), got shapes {a.shape} and "
                f"{b.shape}.",
                ["b is [N, K]: swap the last two dimensions of a [K, N] operand"],
            )
        )
    scales = [float32_array(x) for x in (scale_a, scale_b, scale_result) if x is not None]

    def gemm(a, b, *scales):
        query = SplitQuery(
            function,
            a.shape[-2],
            b.shape[-2],
            a.shape[-1],
            format_a,
            format_b,
            dtype,
            fast,
            platform,
            request,
            to_scaled_fp8=scale_result is not None and format_of(dtype) is not None,
        )
        plan = plan_gemm(query)
        issue(plan.notices)
        return primitive.bind(
            a,
            b,
            *scales,
            model=plan.model,
            plan=plan.accumulation,
            out_dtype=dtype,
            b_layout="nk",
            backend=backend,
        )

    arrays = (jnp.asarray(a), jnp.asarray(b), *scales)
    return contract(gemm, *arrays, contraction=contraction, function=function)
