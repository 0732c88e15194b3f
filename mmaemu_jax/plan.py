"""From checked arguments to a plan: everything about a GEMM but its data."""

import dataclasses

from mmaemu_jax.accumulate import AccumulationPlan, SplitK, make_plan
from mmaemu_jax.call import ScaledMmCall
from mmaemu_jax.checks import check_library, check_modelled, check_torch
from mmaemu_jax.errors import ExperimentalPresetWarning, UnsupportedFeatureError, message
from mmaemu_jax.formats import format_of
from mmaemu_jax.instruction import InstructionModel, Preset
from mmaemu_jax.notices import Notice
from mmaemu_jax.platforms import Profile, SplitDecision, SplitQuery, parse_splitk, resolve


@dataclasses.dataclass(frozen=True)
class GemmPlan:
    """Everything about a GEMM but its data."""

    profile: Profile
    decision: SplitDecision
    model: InstructionModel
    accumulation: AccumulationPlan
    notices: tuple[Notice, ...]


def plan_gemm(query: SplitQuery) -> GemmPlan:
    """How ``query.profile`` computes the GEMM (R10 to R13).

    Raises:
        UnsupportedFeatureError: slow accumulation or a split that was never characterised.
        SplitKUnknownError: the split is unknown.
    """
    profile, preset = query.profile, query.profile.arithmetic
    if not query.use_fast_accum and preset.slow_chunk is None:
        raise UnsupportedFeatureError(
            message(
                f"{query.function}: slow accumulation was never characterised for preset "
                f"{preset.name!r} (profile {profile.name!r}).",
                ["pass use_fast_accum=True", "use another profile, such as 'hopper' or 'ada'"],
            )
        )
    resolution = resolve(query)
    decision = resolution.decision
    accumulation = make_plan(
        query.use_fast_accum,
        SplitK(decision.S, decision.scheme),
        profile.split_rule,
        preset.slow_chunk,
    )
    experimental = experimental_notices(query.function, "profile", profile)
    return GemmPlan(
        profile, decision, preset.model, accumulation, (*experimental, *resolution.notices)
    )


def plan_scaled_mm(call: ScaledMmCall, profile: Profile, splitk) -> GemmPlan | None:
    """The plan of a scaled_mm call, or None for an empty GEMM, which computes nothing (R15, R21).

    Raises:
        ReferenceRejectsError, UnsupportedFeatureError, SplitKUnknownError: see scaled_mm.
    """
    request = parse_splitk("scaled_mm", splitk, profile)
    check_torch(call)
    if call.is_empty:
        return None
    format_a, format_b = check_library(call, profile)
    check_modelled(call)
    return plan_gemm(
        SplitQuery(
            "scaled_mm",
            call.M,
            call.N,
            call.K,
            format_a,
            format_b,
            call.out_dtype,
            call.use_fast_accum,
            profile,
            request,
            to_scaled_fp8=call.scale_result is not None and format_of(call.out_dtype) is not None,
        )
    )


def experimental_notices(function: str, kind: str, whose: Profile | Preset) -> tuple[Notice, ...]:
    """The warning that computing with ``whose`` deserves, if any."""
    if whose.maturity == "validated":
        return ()
    text = message(
        f"{function}: {kind} {whose.name!r} is experimental ({whose.provenance}): no GPU is known "
        "to return these bits.",
        [f"use a validated {kind}, such as 'hopper' or 'ada'", "filter ExperimentalPresetWarning"],
    )
    return (Notice(ExperimentalPresetWarning, text),)
