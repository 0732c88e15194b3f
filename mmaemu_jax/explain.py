"""explain: what a scaled_mm call would do, without doing it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from mmaemu_jax.accumulate import AccumulationPlan
from mmaemu_jax.backends import BackendChoice, choose_backend, fallback_notices
from mmaemu_jax.call import ARRAY_TYPES, ScaledMmCall, scaled_mm_call
from mmaemu_jax.errors import MmaemuError
from mmaemu_jax.instruction import Preset
from mmaemu_jax.notices import Notice
from mmaemu_jax.platforms import Profile, SplitArgument, SplitDecision, profile_argument
from mmaemu_jax.prepare import FUNCTION, prepare_scaled_mm

_ABSTRACT_TYPES = (*ARRAY_TYPES, jax.ShapeDtypeStruct)
#: What each evidence word means for the bits, in a report for people.
_EVIDENCE = {
    "replayed": "recordings of this GPU, in this repository, have these bits",
    "inherited": "the bits of another project's model, which replayed this GPU",
    "experimental": "nobody compared these bits with the GPU's; the call warns",
}
#: What a call raises before it computes (R20).
_REFUSALS = (MmaemuError, TypeError, ValueError)


@dataclasses.dataclass(frozen=True)
class CallPlan:
    """What a call of :func:`scaled_mm` would do; ``str()`` of it is a report for people.

    Attributes:
        call: shapes and dtypes of the arguments; None if one has a wrong Python type.
        profile: whose bits; None if that argument is wrong.
        decision: how K is split, from which source; None for a refused or empty call.
        accumulation: the plan of R10 to R13; None likewise.
        backend: who computes it on JAX's default platform, and why not the others; None likewise.
        notices: the warnings that the call would issue (none was issued).
        error: the exception that the call would raise, or None.
    """

    call: ScaledMmCall | None
    profile: Profile | None
    decision: SplitDecision | None = None
    accumulation: AccumulationPlan | None = None
    backend: BackendChoice | None = None
    notices: tuple[Notice, ...] = ()
    error: Exception | None = None

    @property
    def preset(self) -> Preset | None:
        """The arithmetic of the profile."""
        return None if self.profile is None else self.profile.arithmetic

    @property
    def maturity(self) -> str | None:
        """Of this split of the profile: "validated" or "experimental"."""
        if self.profile is None:
            return None
        return "experimental" if self.evidence == "experimental" else self.profile.maturity

    @property
    def evidence(self) -> str | None:
        """For this split of the profile: "replayed", "inherited" or "experimental"."""
        if self.profile is None:
            return None
        split = self.decision is not None and self.decision.S > 1
        return self.profile.split_evidence if split else self.profile.evidence

    @property
    def is_empty(self) -> bool:
        """The result is zeros, computed by nobody (R15)."""
        return self.error is None and self.decision is None

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON-ready values; dtypes by name, symbolic dimensions as text."""
        return {
            "profile": None if self.profile is None else self.profile.name,
            "preset": None if self.preset is None else self.preset.name,
            "maturity": self.maturity,
            "evidence": self.evidence,
            "call": _call_dict(self.call),
            "empty": self.is_empty,
            "split": _fields(self.decision),
            "accumulation": _fields(self.accumulation),
            "backend": _fields(self.backend),
            "warnings": [{"category": n.category.__name__, "text": n.text} for n in self.notices],
            "error": None
            if self.error is None
            else {"class": type(self.error).__name__, "text": str(self.error)},
        }

    def __str__(self) -> str:
        rows = [*_call_rows(self), *_plan_rows(self)]
        rows += [(n.category.__name__, n.text) for n in self.notices]
        if self.error is not None:
            rows.append((f"raises {type(self.error).__name__}", str(self.error)))
        width = max(len(label) for label, _ in rows)
        return "\n".join(f"{label:<{width}}  {text}" for label, text in rows)


def explain(
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
) -> CallPlan:
    """What :func:`scaled_mm` would do with the same arguments; nothing is computed.

    Args:
        input, mat2, scale_a, scale_b, bias, scale_result: as in scaled_mm, traced arrays
            included; each may also be a ``jax.ShapeDtypeStruct``, which stands for an array.
        out_dtype, use_fast_accum, profile, splitk, backend: as in scaled_mm.

    Returns:
        The plan. It never warns, and what the call would raise before it computes is its
        ``error``. (Differentiating the call is refused later, by JAX's transformation.)
    """
    arrays = (input, mat2, scale_a, scale_b, bias, scale_result)
    arguments = (*arrays, out_dtype, use_fast_accum)
    platform = jax.default_backend()
    try:
        prepared = prepare_scaled_mm(
            *arguments, profile=profile, splitk=splitk, backend=backend, array_types=_ABSTRACT_TYPES
        )
        fallback = ()
        if platform != "cpu" and prepared.plan is not None:
            fallback = fallback_notices(FUNCTION, backend, platform)
    except _REFUSALS as error:
        return CallPlan(
            _known(scaled_mm_call, FUNCTION, *arguments, _ABSTRACT_TYPES),
            _known(profile_argument, FUNCTION, profile),
            error=error.with_traceback(None),  # whose frames would keep the arrays alive
        )
    plan = prepared.plan
    if plan is None:
        return CallPlan(prepared.call, prepared.profile)
    return CallPlan(
        prepared.call,
        prepared.profile,
        plan.decision,
        plan.accumulation,
        choose_backend(backend, platform, plan.model),
        (*plan.notices, *fallback),
    )


def _known(parse: Callable, *arguments):
    """What a refused call says all the same, or None."""
    try:
        return parse(*arguments)
    except _REFUSALS:
        return None


def _fields(value) -> dict[str, Any] | None:
    return None if value is None else dataclasses.asdict(value)


def _call_dict(call: ScaledMmCall | None) -> dict[str, Any] | None:
    if call is None:
        return None
    arrays = ("input", "mat2", "scale_a", "scale_b", "bias", "scale_result")
    operands = {name: getattr(call, name) for name in arrays}
    return {
        **{
            name: None
            if x is None
            else {
                "shape": [d if isinstance(d, int) else str(d) for d in x.shape],
                "dtype": str(x.dtype),
            }
            for name, x in operands.items()
        },
        "out_dtype": str(call.out_dtype),
        "use_fast_accum": call.use_fast_accum,
    }


def _call_rows(plan: CallPlan) -> list[tuple[str, str]]:
    rows = []
    if plan.call is not None:
        call = plan.call
        mode = "fast" if call.use_fast_accum else "slow"
        rows.append(("call", f"{call.input} @ {call.mat2} -> {call.out_dtype}, {mode}"))
    if plan.profile is not None:
        profile = plan.profile
        rows.append(("profile", f"{profile.name}: {profile.gpu}, {profile.library}"))
        rows.append(("", f"called by {profile.caller}"))
        rows.append(("preset", profile.arithmetic.name))
        rows.append(("evidence", _evidence_text(plan)))
    return rows


def _evidence_text(plan: CallPlan) -> str:
    assert plan.evidence is not None, "a plan with a profile has evidence"
    text = f"{plan.evidence}: {_EVIDENCE[plan.evidence]}"
    if plan.maturity == "experimental" and plan.evidence != "experimental":
        text += "; but with an experimental preset, so the call warns"
    return text


def _split_text(decision: SplitDecision) -> str:
    """The split, where it is from, and whether something about it is without evidence."""
    how = f"S = {decision.S} ({decision.scheme})"
    if not decision.verified:
        return f"{how}, source {decision.source}, NOT verified"
    if decision.source == "explicit":
        return f"{how}, as passed: whether the GPU would split like this was not looked up"
    return f"{how}, source {decision.source}, verified"


def _plan_rows(plan: CallPlan) -> list[tuple[str, str]]:
    if plan.is_empty:
        return [("result", "zeros: a dimension is zero, nothing is accumulated (R15)")]
    if plan.decision is None or plan.accumulation is None or plan.backend is None:
        return []
    decision, how = plan.decision, plan.accumulation
    chunks = f"a new chain every {how.chunk_k} elements" if how.chunk_k else "one chain"
    tiles = "interleaved" if how.interleaved else "contiguous"
    cut = f" in each of {how.splits} splits of {tiles} {how.tile_k}-tiles" if how.splits > 1 else ""
    rows = [
        ("split", _split_text(decision)),
        ("", decision.note),
        ("accumulation", chunks + cut),
        ("backend", plan.backend.name),
    ]
    if decision.table_id is not None:
        rows.insert(2, ("table", decision.table_id))
    return rows + [(f"not {s.name}", s.why_not) for s in plan.backend.skipped]
