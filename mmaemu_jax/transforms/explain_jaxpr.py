"""explain_jaxpr: which FP8 GEMMs a function runs, and how a profile would compute each."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import ClosedJaxpr

from mmaemu_jax.arguments import type_name
from mmaemu_jax.errors import MmaemuError, MmaemuWarning, message
from mmaemu_jax.plan import GemmPlan, plan_scaled_mm
from mmaemu_jax.platforms import (
    Profile,
    SplitArgument,
    SplitDecision,
    parse_splitk,
    profile_argument,
)
from mmaemu_jax.primitive import GemmParams
from mmaemu_jax.transforms.fp8_gemms import (
    Fp8Gemm,
    format_name,
    fp8_gemm,
    model_name,
    scheme_name,
)
from mmaemu_jax.transforms.jaxpr_report import GemmSite, JaxprReport
from mmaemu_jax.transforms.jaxprs import Occurrence, walk
from mmaemu_jax.transforms.source_location import source_location

_FUNCTION = "explain_jaxpr"


def explain_jaxpr(
    fn: Callable[..., Any],
    /,
    *args: Any,
    profile: str | Profile | None = None,
    splitk: SplitArgument = "auto",
    **kwargs: Any,
) -> JaxprReport:
    """Every FP8 GEMM that ``fn(*args, **kwargs)`` runs, as a table; nothing is computed.

    Listed are this package's GEMMs (scaled_mm, accumulate, dot), whose split is part of the
    program, and raw ``dot_general`` of two FP8 operands, for which the split is what
    :func:`scaled_mm` would do with that GEMM under ``profile``. A dot of operands converted from
    FP8 is none in the program, even where XLA later makes it one; ``emulate(fn).report`` lists
    those too. The program is as traced: XLA may still drop or merge equations.

    Args:
        fn: a function, jitted or not; jit, vmap, grad, scan, while, cond, remat, custom
            derivatives and shard_map are seen through.
        args, kwargs: fn's arguments: arrays, ShapeDtypeStructs or tracers, in any pytrees. Bind
            others by functools.partial (or make them static arguments of a jitted fn), and
            keyword arguments called profile or splitk too.
        profile, splitk: as in :func:`scaled_mm`, for the dot_general sites.

    Raises:
        TypeError: fn is not callable, or an option has the wrong Python type.
        ValueError: an unknown option value.
        Whatever fn raises when it is traced. Warnings of this package are not issued.
    """
    if not callable(fn):
        raise TypeError(
            message(
                f"{_FUNCTION}: fn must be callable, got {fn!r} of type {type_name(fn)}.",
                ["pass the function and its arguments apart: explain_jaxpr(fn, *args)"],
            )
        )
    platform = profile_argument(_FUNCTION, profile)
    parse_splitk(_FUNCTION, splitk, platform)
    sites = []
    for occurrence in walk(_traced(fn, args, kwargs)):
        gemm = fp8_gemm(occurrence.eqn)
        if gemm is not None:
            sites.append(_site(occurrence, gemm, platform, splitk))
    name = getattr(fn, "__name__", type(fn).__name__)
    return JaxprReport(name, platform.name, repr(splitk), tuple(sites))


def _traced(fn: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> ClosedJaxpr:
    """The jaxpr of ``fn``, without this package's warnings.

    The metadata reaches no program. It makes JAX's trace caches keep this trace apart: a later
    call of a jitted function traces again, and so issues the warnings that are silenced here.
    """
    # A jitted function traces itself, because only it knows its static arguments.
    jitted = fn if isinstance(fn, jax.stages.Wrapped) else jax.jit(lambda *a, **k: fn(*a, **k))
    with warnings.catch_warnings(), set_xla_metadata(mmaemu_jax=_FUNCTION):
        warnings.simplefilter("ignore", MmaemuWarning)
        return jitted.trace(*args, **kwargs).jaxpr


def _site(
    occurrence: Occurrence, gemm: Fp8Gemm, profile: Profile, splitk: SplitArgument
) -> GemmSite:
    if gemm.params is not None:
        split, plan, reason = _built_in(gemm.params), gemm.params.plan, ""
        model = model_name(gemm.params.model)
    else:
        planned = _planned(gemm, profile, splitk)
        known = isinstance(planned, GemmPlan)
        split, plan = (planned.decision, planned.accumulation) if known else (None, None)
        reason, model = "" if known else planned, profile.arithmetic.name
    return GemmSite(
        location=source_location(occurrence),
        scope=occurrence.scope,
        kind=gemm.kind,
        M=gemm.M,
        N=gemm.N,
        K=gemm.K,
        batch=gemm.batch,
        format_a=format_name(gemm.dtype_a),
        format_b=format_name(gemm.dtype_b),
        out_dtype=gemm.out_dtype.name,
        accumulate=gemm.accumulate,
        model=model,
        split=split,
        plan=plan,
        reason=reason,
        times=occurrence.times,
        loops=occurrence.loops,
        conditional=occurrence.conditional,
    )


def _built_in(params: GemmParams) -> SplitDecision:
    """The decision that was made when the program was traced; whence is not part of it."""
    note = "part of the traced program"
    return SplitDecision(params.plan.splits, scheme_name(params.plan), "explicit", note=note)


def _planned(gemm: Fp8Gemm, profile: Profile, splitk: SplitArgument) -> GemmPlan | str:
    """How scaled_mm would compute a dot_general under ``profile``, or why that is unknown."""
    if gemm.accumulate == "unknown":
        return "dot_general: the algorithm of its precision is not one of FP8."
    try:
        plan = plan_scaled_mm(gemm.as_call(scale_result=False), profile, splitk)
    except MmaemuError as error:
        return str(error)
    return "dot_general: the GEMM is empty, nothing is accumulated (R15)." if plan is None else plan
