"""Figures of the studies; the numbers they show are the rows they are given."""

import os
from collections.abc import Sequence
from typing import Any

from mmaemu_jax.plotting import COLOURS, new_figure
from mmaemu_jax.studies.error_by_k import AccumulationError

_PANELS = (
    ("norm_error", "norm of the error / of the result"),
    ("largest_error", "largest error / rms result"),
    ("bias", "|bias| / mean |result|"),
)


def plot_error_by_k(
    rows: Sequence[AccumulationError], path: str | os.PathLike | None = None
) -> Any:
    """Error and bias against K, a line for each accumulation, a row of panels per distribution.

    Args:
        rows: what ``error_by_k`` returned, several calls together if you like.
        path: where to save it (PNG, SVG or PDF, by the name); None saves nothing.

    Returns:
        The ``matplotlib.figure.Figure``.

    Raises:
        ValueError: no rows.
        ModuleNotFoundError: matplotlib is not installed.
    """
    if not rows:
        raise ValueError("plot_error_by_k: there are no rows to draw.")
    distributions = list(dict.fromkeys(row.distribution for row in rows))
    figure, axes = new_figure(
        "plot_error_by_k",
        9.6,
        0.3 + 2.5 * len(distributions),
        nrows=len(distributions),
        ncols=len(_PANELS),
        squeeze=False,
    )
    for line, distribution in zip(axes, distributions, strict=True):
        chosen = [row for row in rows if row.distribution == distribution]
        for ax, (field, label) in zip(line, _PANELS, strict=True):
            _draw(ax, chosen, field)
            ax.set(xlabel="K", title=label)
        line[0].set_ylabel(f"{distribution} data")
    axes[0][0].legend(frameon=False, fontsize=8)
    if path is not None:
        figure.savefig(path, dpi=90)
    return figure


def _draw(ax: Any, rows: Sequence[AccumulationError], field: str) -> None:
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    for colour, way in zip(COLOURS, dict.fromkeys(r.accumulation for r in rows), strict=False):
        points = [(r.k, abs(getattr(r, field))) for r in rows if r.accumulation == way]
        ax.plot(*zip(*points, strict=True), color=colour, label=way, marker="o", markersize=3)
