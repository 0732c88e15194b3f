"""How many parts cuBLAS cut K into: an ordered list of small resolvers.

Each resolver looks at one source and returns a decision or the reason why it has none. The
first decision wins; without one, all the reasons go into the error.
"""

import dataclasses
from collections.abc import Callable
from typing import cast

import numpy as np
from jax.export import is_symbolic_dim

from mmaemu_jax.arguments import (
    flag_argument,
    format_argument,
    output_dtype_argument,
    type_name,
)
from mmaemu_jax.errors import (
    SplitKUnknownError,
    UnsupportedFeatureError,
    UnvalidatedEnvelopeWarning,
    UnverifiedSplitWarning,
    message,
)
from mmaemu_jax.notices import Notice, issue
from mmaemu_jax.platforms.live_query import live_step
from mmaemu_jax.platforms.profile import Profile
from mmaemu_jax.platforms.shipped_profiles import profile_argument
from mmaemu_jax.platforms.split_decision import SplitDecision, SplitQuery
from mmaemu_jax.platforms.split_request import (
    SplitArgument,
    explicit_forms,
    parse_splitk,
)
from mmaemu_jax.platforms.table_steps import (
    envelope_step,
    table_step,
    unverified_combination,
    without_scale_result,
)


@dataclasses.dataclass(frozen=True)
class Resolution:
    """A decision and the warnings that whoever uses it issues."""

    decision: SplitDecision
    notices: tuple[Notice, ...] = ()


Resolver = Callable[[SplitQuery], SplitDecision | str]


def _explicit(query: SplitQuery) -> SplitDecision | str:
    split, profile = query.request.split, query.profile
    if split is None:
        return "explicit: no split was passed"
    if split.S > 1 and not profile.splits:
        raise UnsupportedFeatureError(
            message(
                f"{query.function}: split-K (S = {split.S}) was never characterised on profile "
                f"{profile.name!r} (preset {profile.arithmetic.name!r}).",
                ["pass splitk=1", "use a profile with a split rule, such as 'hopper' or 'ada'"],
            )
        )
    return SplitDecision(split.S, split.scheme, "explicit", note="given by the caller")


def _zero_size(query: SplitQuery) -> SplitDecision | str:
    if not query.is_empty:
        return "zero-size: no dimension is zero"
    return SplitDecision(1, "none", "envelope", note="zero-size GEMM: nothing is accumulated (R15)")


def _workspace0(query: SplitQuery) -> SplitDecision | str:
    if query.profile.workspace_bytes != 0:
        return "workspace0: the profile's workspace is not 0"
    return SplitDecision(1, "none", "workspace0", note="without a workspace cuBLASLt never splits")


def _assumed(query: SplitQuery) -> SplitDecision | str:
    if query.request.mode != "auto_or_unsplit":
        return "assumed: only splitk='auto_or_unsplit' assumes S = 1"
    note = "S = 1 is assumed: no source knows this GEMM"
    return SplitDecision(1, "none", "assumed", verified=False, note=note)


#: In order of precedence.
RESOLVERS: tuple[Resolver, ...] = (
    _explicit,
    _zero_size,
    _workspace0,
    table_step,
    live_step,
    envelope_step,
    _assumed,
)


def _missing_evidence(query: SplitQuery, decision: SplitDecision) -> list[str]:
    """Why ``decision`` was never seen on the hardware; empty if it was."""
    if query.is_empty:
        return []
    profile, rule = query.profile, query.profile.split_rule
    missing = [] if decision.verified else [decision.note]
    by_table = (unverified_combination(query, decision), without_scale_result(query, decision))
    missing += [reason for reason in by_table if reason is not None]
    if decision.S > 1 and profile.split_evidence == "experimental":
        missing.append(f"S > 1 is experimental on profile {profile.name!r}")
    if decision.S > 1 and rule is not None and not rule.empty_split_recorded:
        if not isinstance(query.K, int):
            missing.append(f"K = {query.K} is symbolic: some splits may own no k-tile (R13)")
        elif rule.leaves_split_empty(decision.S, query.K):
            missing.append("some splits own no k-tile, which was never recorded (R13)")
    return missing


def resolve(query: SplitQuery) -> Resolution:
    """The decision for ``query`` and its warnings, which are not issued here.

    Raises:
        SplitKUnknownError: no resolver knows; the message gives every reason and the ways out.
        UnsupportedFeatureError: S > 1 where split-K was never characterised.
    """
    reasons = []
    for resolver in RESOLVERS:
        found = resolver(query)
        if isinstance(found, SplitDecision):
            return _with_evidence(query, _explained(query, found, reasons))
        reasons.append(found)
    raise SplitKUnknownError(
        message(
            f"{query.function}: unknown how cuBLASLt splits K for {query} with "
            f"splitk={query.request.mode!r}. Tried {'; '.join(reasons)}.",
            [
                f"pass the split if it is known ({explicit_forms(query.profile)})",
                "splitk='auto_or_unsplit' assumes S = 1 with a warning",
                "a profile without workspace never splits ('hopper-ws0', 'ada-ws0')",
            ],
        )
    )


def _explained(query: SplitQuery, decision: SplitDecision, reasons: list[str]) -> SplitDecision:
    """``decision``, saying why the running GPU was not asked where the caller wanted that."""
    unanswered = [reason for reason in reasons if reason.startswith("live-query:")]
    if query.request.mode != "live" or not unanswered:
        return decision
    return dataclasses.replace(decision, note=f"{decision.note}; {unanswered[0]}")


def _with_evidence(query: SplitQuery, decision: SplitDecision) -> Resolution:
    missing = _missing_evidence(query, decision)
    if not missing:
        return Resolution(decision)
    why = "; ".join(missing)
    text = message(
        f"{query.function}: S = {decision.S} ({decision.scheme}, source {decision.source}) is not "
        f"verified for {query}: {why}.",
        [f"pass the split the GPU used ({explicit_forms(query.profile)})"],
    )
    inferred = decision.source == "envelope" and not decision.verified
    category = UnvalidatedEnvelopeWarning if inferred else UnverifiedSplitWarning
    note = f"{why}; {decision.note}" if decision.verified else why  # else why has the note
    decision = dataclasses.replace(decision, verified=False, note=note)
    return Resolution(decision, (Notice(category, text),))


def resolve_splitk(
    M: int,
    N: int,
    K: int,
    *,
    a_dtype,
    b_dtype,
    out_dtype,
    use_fast_accum: bool,
    profile: str | Profile | None = None,
    splitk: SplitArgument = "auto",
) -> SplitDecision:
    """How the reference platform splits the GEMM of a [M, K] and b [N, K].

    Args:
        M, N, K: the dimensions (symbolic ones only with an explicit split or without workspace).
        a_dtype, b_dtype: FP8 dtypes or their names.
        out_dtype: one of the five output dtypes (R18); None is ``a_dtype``, as in torch.
        use_fast_accum: fast or slow accumulation (R10, R11).
        profile: a name, a :class:`Profile`, or None for the default.
        splitk: "auto", "table" (no inference), "auto_or_unsplit" (else S = 1, with a warning),
            "live", 1, (S, scheme) or a :class:`SplitK`.

    Raises:
        TypeError, ValueError: an argument of the wrong type or value.
        SplitKUnknownError: no source knows; the message lists the ways out.
        UnsupportedFeatureError: S > 1 where split-K was never characterised.
    """
    function = "resolve_splitk"
    platform = profile_argument(function, profile)
    format_a = format_argument(function, "a_dtype", a_dtype)
    query = SplitQuery(
        function,
        *(dimension_argument(function, name, dim) for name, dim in (("M", M), ("N", N), ("K", K))),
        format_a=format_a,
        format_b=format_argument(function, "b_dtype", b_dtype),
        out_dtype=output_dtype_argument(
            function, "out_dtype", format_a.dtype if out_dtype is None else out_dtype
        ),
        use_fast_accum=flag_argument(function, "use_fast_accum", use_fast_accum),
        profile=platform,
        request=parse_splitk(function, splitk, platform),
    )
    resolution = resolve(query)
    issue(resolution.notices)
    return resolution.decision


def dimension_argument(function: str, name: str, value) -> int:
    """``value`` as a dimension: an int that is not negative, or symbolic."""
    if is_symbolic_dim(value):
        return cast(int, value)  # JAX, too, types symbolic dimensions as int
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(
            f"{function}: {name} must be an int or a symbolic dimension of jax.export, "
            f"got {value!r} of type {type_name(value)}."
        )
    if value < 0:
        raise ValueError(f"{function}: {name} must not be negative, got {value}.")
    return int(value)
