"""What a reader must not conclude from a comparison, as far as its lines can tell."""

from typing import Any

from mmaemu_jax.training.comparison.figures import Metrics
from mmaemu_jax.training.comparison.markup import Shown


def caveats(metrics: Metrics, shown: Shown, config: dict[str, Any]) -> list[str]:
    """HTML sentences."""
    return [
        f"{shown('steps')} steps of a small model say little about a long run: what accumulates "
        "over thousands of steps, or appears at a scale where K is ten times as large, is not "
        "seen here.",
        *_evidence(metrics),
        *_splits(metrics),
        "Only the products of the linear layers are emulated. Everything else, attention and "
        "optimizer included, is XLA's arithmetic on this machine in every variant, and would "
        "round differently on a GPU.",
        *_chance(metrics, shown),
    ]


_EVIDENCE = {
    "replayed": "recordings of that GPU are returned bit for bit (unsplit GEMMs)",
    "inherited": "others replayed recordings of that GPU (unsplit GEMMs) with a model that this "
    "package agrees with",
    "experimental": "no GPU is known to return these bits",
}


def _evidence(metrics: Metrics) -> list[str]:
    """What is known of each emulated profile."""
    profiles: dict[str, list[str]] = {}
    for line in metrics.of_kind("shape"):
        if line["evidence"] is not None and line["profile"] not in profiles.get(
            line["evidence"], []
        ):
            profiles.setdefault(line["evidence"], []).append(line["profile"])
    return [
        f"Evidence for {' and '.join(names)}: {evidence}: {_EVIDENCE[evidence]}. Another version "
        "of the library may differ."
        for evidence, names in profiles.items()
    ]


def _splits(metrics: Metrics) -> list[str]:
    lines = metrics.of_kind("shape")
    unknown = [x for x in lines if x["source"] == "unknown"]
    unverified = [x for x in lines if x["verified"] is False and x["source"] != "unknown"]
    found = []
    if unknown:
        names = ", ".join(dict.fromkeys(x["variant"] for x in unknown))
        found.append(
            f"Some GEMMs of {names} are in no split-K table. They were computed unsplit, which the "
            "GPU may not do."
        )
    if unverified:
        names = ", ".join(dict.fromkeys(x["variant"] for x in unverified))
        found.append(
            f"Some split decisions of {names} were inferred, or never compared with a GPU."
        )
    return found


def _chance(metrics: Metrics, shown: Shown) -> list[str]:
    if len(metrics.seeds) < 2:
        return []
    return [
        f"With {shown('seeds')} seeds a difference can have the same sign for every seed by "
        "chance alone."
    ]
