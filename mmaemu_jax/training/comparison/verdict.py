"""How far the final losses of a variant are from the reference's, in one word."""

import math
from typing import Literal

from mmaemu_jax.training.comparison.figures import Figures, Metrics

Verdict = Literal["equal", "noise", "small", "visible", "unknown", "not finite"]

#: What the page says of each.
VERDICT_TEXTS: dict[Verdict, str] = {
    "equal": "none",
    "noise": "within rounding noise",
    "small": "less than another seed makes",
    "visible": "more than another seed makes",
    "unknown": "not judged: one seed",
    "not finite": "not finite",
}


def verdict(metrics: Metrics, figures: Figures, name: str) -> Verdict:
    """What to think of the difference between the final losses of ``name`` and the reference.

    "noise": the mean over seeds is no further from zero than the control's is for its worst seed.
    "visible": it is further than the reference's seeds are from each other. "small": between.
    """
    average = _number(figures[f"apart/{name}/mean"])
    worst = _worst(figures, name)
    if math.isnan(average):
        return "not finite"
    if worst == 0:
        return "equal"
    controls = [_worst(figures, control) for control in metrics.controls if control != name]
    if controls and abs(average) <= max(controls):
        return "noise"
    if len(metrics.seeds) < 2:
        return "unknown"
    spread = _number(figures[f"loss/{metrics.reference}/spread"])
    return "visible" if abs(average) > spread else "small"


def by_verdict(metrics: Metrics, figures: Figures) -> dict[Verdict, list[str]]:
    """The variants, controls left out, by what is to think of them."""
    found: dict[Verdict, list[str]] = {}
    for name in metrics.others():
        if name not in metrics.controls:
            found.setdefault(verdict(metrics, figures, name), []).append(name)
    return found


def _worst(figures: Figures, name: str) -> float:
    return max(abs(_number(figures[f"apart/{name}/{end}"])) for end in ("low", "high"))


def _number(value: float | int | str | None) -> float:
    return math.nan if value is None or isinstance(value, str) else float(value)
