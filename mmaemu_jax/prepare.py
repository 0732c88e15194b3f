"""Everything of a scaled_mm call that happens before anything is computed.

The call and its explanation both run this function, so they cannot disagree.
"""

import dataclasses

from mmaemu_jax.arguments import flag_argument, name_argument, output_dtype_argument
from mmaemu_jax.backends import check_backend
from mmaemu_jax.call import ARRAY_TYPES, ScaledMmCall, scaled_mm_call
from mmaemu_jax.errors import message
from mmaemu_jax.operands import fp8_operand
from mmaemu_jax.plan import GemmPlan, plan_gemm, plan_scaled_mm
from mmaemu_jax.platforms import Profile, SplitArgument, SplitQuery, parse_splitk, profile_argument

FUNCTION = "scaled_mm"


@dataclasses.dataclass(frozen=True)
class PreparedScaledMm:
    """A call that will not be refused; ``plan`` is None if there is nothing to multiply (R15)."""

    call: ScaledMmCall
    profile: Profile
    plan: GemmPlan | None


def prepare_scaled_mm(
    input,
    mat2,
    scale_a,
    scale_b,
    bias,
    scale_result,
    out_dtype,
    use_fast_accum,
    *,
    profile: str | Profile | None,
    splitk: SplitArgument,
    backend: str,
    array_types=ARRAY_TYPES,
) -> PreparedScaledMm:
    """Checks and plans a call, in the order of R21; the errors are those of scaled_mm."""
    call = scaled_mm_call(
        FUNCTION,
        input,
        mat2,
        scale_a,
        scale_b,
        bias,
        scale_result,
        out_dtype,
        use_fast_accum,
        array_types,
    )
    name_argument(FUNCTION, "backend", backend)
    platform = profile_argument(FUNCTION, profile)
    plan = plan_scaled_mm(call, platform, splitk)
    check_backend(FUNCTION, backend)
    return PreparedScaledMm(call, platform, plan)


@dataclasses.dataclass(frozen=True)
class PreparedAccumulate:
    """An accumulate call that will not be refused; with ``is_empty`` there is nothing to sum."""

    shape: tuple
    plan: GemmPlan
    is_empty: bool


def prepare_accumulate(
    a,
    b,
    use_fast_accum: bool,
    profile: str | Profile | None,
    splitk: SplitArgument,
    backend: str,
    out_dtype_for_split,
    array_types=ARRAY_TYPES,
) -> PreparedAccumulate:
    """Checks and plans an accumulate call; the errors are those of accumulate."""
    function = "accumulate"
    of_a, format_a = fp8_operand(function, "a", a, array_types)
    of_b, format_b = fp8_operand(function, "b", b, array_types)
    fast = flag_argument(function, "use_fast_accum", use_fast_accum)
    split_dtype = output_dtype_argument(function, "out_dtype_for_split", out_dtype_for_split)
    name_argument(function, "backend", backend)
    platform = profile_argument(function, profile)
    request = parse_splitk(function, splitk, platform)
    if not len(of_a.shape) == len(of_b.shape) == 2 or of_a.shape[1] != of_b.shape[1]:
        raise ValueError(
            message(
                f"{function}: a and b must be matrices [M, K] and [N, K], got {of_a} and {of_b}.",
                ["b is [N, K]: pass b.T for a [K, N] operand", "use jax.vmap for a batch of GEMMs"],
            )
        )
    (m, k), n = of_a.shape, of_b.shape[0]
    query = SplitQuery(function, m, n, k, format_a, format_b, split_dtype, fast, platform, request)
    plan = plan_gemm(query)
    check_backend(function, backend)
    return PreparedAccumulate((m, n), plan, query.is_empty)
