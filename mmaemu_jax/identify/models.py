"""What users call a model, as a member of the family."""

from typing import Any

from mmaemu_jax.accumulate import ONE_CHAIN, AccumulationPlan, SplitK, make_plan
from mmaemu_jax.arguments import type_name
from mmaemu_jax.errors import message
from mmaemu_jax.identify.member import Member, member_of
from mmaemu_jax.identify.report import Identification
from mmaemu_jax.instruction import Preset, preset_argument
from mmaemu_jax.platforms import profile_argument

UNSPLIT = SplitK(1)


def as_member(function: str, model: Any) -> Member:
    """A member as it is; of an identification the plainest; a preset's chain, or with a plan.

    Raises:
        TypeError: none of these.
        ValueError: an identification that found no member, an unknown preset.
    """
    if isinstance(model, Member):
        return model
    if isinstance(model, Identification):
        if model.member is None:
            raise ValueError(
                message(f"{function}: the GEMM is outside the family.", ["its `nearest` member"])
            )
        return model.member
    if isinstance(model, str | Preset):
        return member_of(preset_argument(function, model).model, ONE_CHAIN)
    if isinstance(model, tuple) and len(model) == 2 and isinstance(model[1], AccumulationPlan):
        return member_of(preset_argument(function, model[0]).model, model[1])
    raise TypeError(
        message(
            f"{function}: a model must be a Member, an Identification, a preset or (preset, plan), "
            f"got {type_name(model)}.",
            ["'hopper'", "mmaemu_jax.identify.profile_member('hopper', use_fast_accum=False)"],
        )
    )


def profile_member(profile: Any = None, *, use_fast_accum: bool, split: SplitK = UNSPLIT) -> Member:
    """How a profile of this package computes a GEMM whose split is known, as a member.

    Args:
        profile: a name, a Profile, or None for the default.
        use_fast_accum: as in scaled_mm (R10, R11).
        split: S and its scheme (R12, R13).
    """
    platform = profile_argument("profile_member", profile)
    preset = platform.arithmetic
    plan = make_plan(use_fast_accum, split, platform.split_rule, preset.slow_chunk)
    return member_of(preset.model, plan)
