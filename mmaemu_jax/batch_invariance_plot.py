"""The plot of a batch-invariance report: S against M."""

import os
from typing import Any

from mmaemu_jax.batch_invariance import UNKNOWN, BatchInvarianceReport, MRun
from mmaemu_jax.plotting import COLOURS, new_figure


def plot(report: BatchInvarianceReport, path: str | os.PathLike | None) -> Any:
    """See :meth:`BatchInvarianceReport.plot`."""
    figure, ax = new_figure("BatchInvarianceReport.plot", 7.2, 2.8)
    colours = dict(zip(dict.fromkeys(map(kind_of, report.runs)), COLOURS, strict=False))
    lowest = max(report.runs[0].first, 1) if report.runs else 1  # 0 has no place on the scale
    for run in report.splits:
        span = (max(run.first - 0.5, lowest), max(run.last + 0.5, lowest))
        if run.S is None:
            ax.axvspan(*span, color="#eeeeee", label=UNKNOWN)
        else:
            colour, label = colours[kind_of(run)], kind_of(run)
            ax.fill_between(span, run.S, color=colour, alpha=0.25, linewidth=0)
            ax.hlines(run.S, *span, color=colour, linewidth=2.5, label=label)
            ax.plot((run.first, run.last), (run.S, run.S), ".", color=colour)
    labels = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    ax.legend(labels.values(), labels.keys(), fontsize=8, loc="upper right")
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:.0f}")
    ax.set_yticks(sorted({run.S for run in report.runs if run.S is not None}))
    ax.set(xlabel="M", ylabel="parts of K (S)", xlim=(0.9 * lowest, None), ylim=(0, None))
    ax.set_title(report.head, fontsize=9)
    if path is not None:
        figure.savefig(path, dpi=90)
    return figure


def kind_of(run: MRun) -> str:
    """How the parts are combined, for the legend."""
    if run.S is None:
        return UNKNOWN
    return "not split" if run.S == 1 else run.scheme
