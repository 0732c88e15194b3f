"""Every figure of the report, by name, computed from the lines of metrics.jsonl alone."""

import math
from collections.abc import Iterable
from typing import Any

Line = dict[str, Any]
Figures = dict[str, float | int | str | None]

#: Steps whose mean is a run's final loss.
FINAL_STEPS = 10
NEVER = "never"


class Metrics:
    """The lines, by kind.

    Attributes:
        variants: names in order.
        reference: the variant that the others are measured against.
        controls: the variants that differ from it by rounding noise alone.
        seeds: in order.
    """

    def __init__(self, lines: Iterable[Line], reference: str, controls: Iterable[str] = ()):
        self._lines = list(lines)
        self.reference = reference
        self.controls = list(controls)
        self.variants = self.values("step", "variant")
        self.seeds = self.values("step", "seed")
        self._runs: dict[tuple[str, int], list[Line]] = {}
        for line in self.of_kind("step"):
            self._runs.setdefault((line["variant"], line["seed"]), []).append(line)

    def of_kind(self, kind: str, **fields: Any) -> list[Line]:
        """The lines of a kind with these values."""
        return [
            line
            for line in self._lines
            if line["kind"] == kind and all(line[f] == value for f, value in fields.items())
        ]

    def values(self, kind: str, field: str) -> list:
        """The distinct values of a field, in order."""
        return list(dict.fromkeys(line[field] for line in self.of_kind(kind)))

    def run(self, variant: str, seed: int) -> list[Line]:
        """The steps of one run."""
        return self._runs[variant, seed]

    def losses(self, variant: str, seed: int) -> list[float]:
        """The losses of one run; NaN where a loss is not finite."""
        return [math.nan if x["loss"] is None else x["loss"] for x in self.run(variant, seed)]

    def final_loss(self, variant: str, seed: int) -> float:
        """Mean loss of the last steps of one run."""
        return mean(self.losses(variant, seed)[-FINAL_STEPS:])

    def others(self) -> list[str]:
        """All variants but the reference."""
        return [name for name in self.variants if name != self.reference]


def mean(values: Iterable[float]) -> float:
    """The mean; NaN of nothing."""
    found = list(values)
    return math.fsum(found) / len(found) if found else math.nan


def all_figures(metrics: Metrics) -> Figures:
    """Every figure; names are parts joined by "/", the first says what kind it is."""
    figures: Figures = {
        "variants": len(metrics.variants),
        "runs": len(metrics.variants) * len(metrics.seeds),
        "seeds": len(metrics.seeds),
        "steps": len(metrics.run(metrics.reference, metrics.seeds[0])),
    }
    for name in metrics.variants:
        figures |= _loss_figures(metrics, name)
    for name in metrics.others():
        figures |= _parting_figures(metrics, name)
        figures |= _gradient_figures(metrics, name)
        figures |= _gemm_figures(metrics, name)
    probed = metrics.values("gradient", "seed")
    if probed:
        figures["probe_seed"] = probed[0]
    figures["others"] = len(metrics.others())
    figures["parted"] = sum(figures[f"parted/{n}/state"] != NEVER for n in metrics.others())
    return figures


def _loss_figures(metrics: Metrics, name: str) -> Figures:
    """loss/first, /final, /low, /high, /spread; and the paired difference from the reference."""
    first = [metrics.losses(name, seed)[0] for seed in metrics.seeds]
    final = [metrics.final_loss(name, seed) for seed in metrics.seeds]
    figures: Figures = {
        f"loss/{name}/first": mean(first),
        f"loss/{name}/final": mean(final),
        f"loss/{name}/low": min(final),
        f"loss/{name}/high": max(final),
        f"loss/{name}/spread": max(final) - min(final),
    }
    if name != metrics.reference:
        apart = [
            ours - metrics.final_loss(metrics.reference, seed)
            for ours, seed in zip(final, metrics.seeds, strict=True)
        ]
        figures |= {
            f"apart/{name}/mean": mean(apart),
            f"apart/{name}/low": min(apart),
            f"apart/{name}/high": max(apart),
        }
    return figures


def _parting_figures(metrics: Metrics, name: str) -> Figures:
    """parted/loss and parted/state: the first step, over all seeds, with other bits."""
    figures: Figures = {}
    for what, field in (("loss", "loss_bits"), ("state", "state")):
        steps = [
            ours["step"]
            for seed in metrics.seeds
            for ours, reference in zip(
                metrics.run(name, seed), metrics.run(metrics.reference, seed), strict=True
            )
            if ours[field] != reference[field]
        ]
        figures[f"parted/{name}/{what}"] = min(steps, default=NEVER)
    return figures


def _gradient_figures(metrics: Metrics, name: str) -> Figures:
    """gradient/STEP: of the whole gradient; /worst over all steps."""
    lines = metrics.of_kind("gradient", variant=name, leaf="all")
    figures: Figures = {}
    for line in lines:
        for field in ("one_minus_cosine", "relative_difference"):
            figures[f"gradient/{name}/{field}/{line['step']}"] = line[field]
    for field in ("one_minus_cosine", "relative_difference"):
        known = [line[field] for line in lines if line[field] is not None]
        if known:
            figures[f"gradient/{name}/{field}/worst"] = max(known)
    return figures


def _gemm_figures(metrics: Metrics, name: str) -> Figures:
    """gemm/GEMM: over all sites and probed steps."""
    figures: Figures = {}
    for gemm in metrics.values("gemm", "gemm"):
        lines = metrics.of_kind("gemm", variant=name, gemm=gemm)
        head = f"gemm/{name}/{gemm}"
        figures |= {
            f"{head}/share": share(lines),
            f"{head}/median_ulps": mean(line["median_ulps"] for line in lines),
            f"{head}/p99_ulps": mean(line["p99_ulps"] for line in lines),
            f"{head}/norm_error": mean(line["norm_error"] for line in lines),
            f"{head}/bias": mean(line["bias"] for line in lines),
            f"{head}/k": max(line["k"] for line in lines),
        }
    return figures


def share(lines: list[Line]) -> float:
    """Share of the outputs of these GEMMs whose bits differ."""
    return sum(line["differing"] for line in lines) / sum(line["outputs"] for line in lines)
