"""The emulated GEMMs of a variant's train step, and what its profile's table says about each."""

import functools
from typing import Any

from mmaemu_jax.errors import MmaemuError
from mmaemu_jax.platforms import Profile, get_profile, resolve_splitk
from mmaemu_jax.training.comparison.plan import Job
from mmaemu_jax.training.comparison.variant import Variant
from mmaemu_jax.transforms import GemmSite, explain_jaxpr

Line = dict[str, Any]


def shape_lines(job: Job, name: str) -> list[Line]:
    """One line for each distinct emulated GEMM of a step of variant ``name``."""
    variant = job.variants[name]
    seed = job.probe_seed
    report = explain_jaxpr(
        functools.partial(_step, job.train_step, variant.numerics),
        job.init(seed),
        job.batches(seed, 0),
    )
    times: dict[tuple, int] = {}
    for site in report:
        if site.kind == "mmaemu":
            times[_key(site)] = times.get(_key(site), 0) + site.times * site.batch
    return [
        {"kind": "shape", "variant": name, **dict(key), "times": count, **_decision(variant, key)}
        for key, count in times.items()
    ]


def _step(train_step, numerics, state, batch):
    return train_step(state, batch, numerics)


def _key(site: GemmSite) -> tuple[tuple[str, Any], ...]:
    assert site.split is not None, "an emulated GEMM carries its split"
    return (
        ("m", site.M),
        ("n", site.N),
        ("k", site.K),
        ("a", site.format_a),
        ("b", site.format_b),
        ("out", site.out_dtype),
        ("accumulate", site.accumulate),
        ("model", site.model),
        ("S", site.split.S),
    )


def _evidence(profile: Profile) -> str:
    """How well the unsplit GEMM is known: the weaker of the profile's and its preset's evidence."""
    return "experimental" if profile.maturity == "experimental" else profile.evidence


def _decision(variant: Variant, key: tuple[tuple[str, Any], ...]) -> Line:
    """Where the profile's decision comes from; it need not be the S that the program uses."""
    gemm = dict(key)
    nothing = {"profile": None, "evidence": None, "source": None, "table_S": None, "verified": None}
    if variant.profile is None:
        return nothing
    profile: Profile = get_profile(variant.profile)
    facts = {**nothing, "profile": profile.name, "evidence": _evidence(profile)}
    try:
        decision = resolve_splitk(
            gemm["m"],
            gemm["n"],
            gemm["k"],
            a_dtype=gemm["a"],
            b_dtype=gemm["b"],
            out_dtype=gemm["out"],
            use_fast_accum=gemm["accumulate"] == "fast",
            profile=profile,
        )
    except MmaemuError:
        return {**facts, "source": "unknown"}
    return {
        **facts,
        "source": decision.source,
        "table_S": decision.S,
        "verified": decision.verified,
    }
