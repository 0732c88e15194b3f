"""Everything of a scaled_mm call that happens before anything is computed.

The call and its explanation both run this function, so they cannot disagree.
"""

import dataclasses

from mmaemu_jax.arguments import name_argument
from mmaemu_jax.backends import check_backend
from mmaemu_jax.call import ARRAY_TYPES, ScaledMmCall, scaled_mm_call
from mmaemu_jax.plan import GemmPlan, plan_scaled_mm
from mmaemu_jax.platforms import Profile, SplitArgument, profile_argument

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
