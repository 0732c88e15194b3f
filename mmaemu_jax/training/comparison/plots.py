"""The plots of the report, as PNG; what they show are lines and figures, nothing else."""

import io
import math
from collections.abc import Iterator
from typing import Any

from mmaemu_jax.plotting import COLOURS, new_figure
from mmaemu_jax.training.comparison.figures import Metrics, mean, share

_FUNCTION = "compare"

#: (x values, y values) by label.
Series = dict[str, tuple[list[float], list[float]]]


def all_plots(metrics: Metrics) -> dict[str, bytes]:
    """PNG bytes by name: loss, apart, and what was probed: gradient, gemms."""
    plots = {"loss": _loss(metrics), "apart": _apart(metrics)}
    if metrics.of_kind("gradient"):
        plots["gradient"] = _gradient(metrics)
    if metrics.of_kind("gemm"):
        plots["gemms"] = _gemms(metrics)
    return plots


def loss_series(metrics: Metrics) -> Series:
    """Mean loss over seeds, by variant and step."""
    return {name: _over_seeds(metrics, metrics.losses, name) for name in metrics.variants}


def apart_series(metrics: Metrics) -> Series:
    """Mean over seeds of the difference from the reference's loss at the same step and seed."""

    def apart(name: str, seed: int) -> list[float]:
        reference = metrics.losses(metrics.reference, seed)
        return [x - y for x, y in zip(metrics.losses(name, seed), reference, strict=True)]

    return {name: _over_seeds(metrics, apart, name) for name in metrics.others()}


def gradient_series(metrics: Metrics) -> Series:
    """Relative difference of the whole gradient from the reference's, by probed step."""
    return {
        name: (
            [line["step"] for line in lines],
            [_number(line["relative_difference"]) for line in lines],
        )
        for name in metrics.others()
        if (lines := metrics.of_kind("gradient", variant=name, leaf="all"))
    }


def gemm_shares(metrics: Metrics, gemm: str) -> list[list[float]]:
    """Share of differing outputs, a row per variant, a column per site."""
    return [
        [
            share(metrics.of_kind("gemm", variant=name, gemm=gemm, site=site))
            for site in metrics.values("gemm", "site")
        ]
        for name in metrics.others()
    ]


def _over_seeds(metrics: Metrics, values, name: str) -> tuple[list[float], list[float]]:
    runs = [values(name, seed) for seed in metrics.seeds]
    steps = [line["step"] for line in metrics.run(name, metrics.seeds[0])]
    return steps, [mean(at_step) for at_step in zip(*runs, strict=True)]


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _styles(metrics: Metrics) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each variant with its colour and line; the reference is black and dashed, on top."""
    colours = iter(COLOURS[:-1] * (1 + len(metrics.variants) // (len(COLOURS) - 1)))
    for name in metrics.others():
        yield name, {"color": next(colours), "linewidth": 1.4}
    last = {"color": COLOURS[-1], "linewidth": 1.2, "linestyle": (0, (4, 2))}
    yield metrics.reference, last


def _loss(metrics: Metrics) -> bytes:
    figure, axes = new_figure(_FUNCTION, 10.5, 4.2, ncols=2)
    steps = len(metrics.run(metrics.reference, metrics.seeds[0]))
    series = loss_series(metrics)
    for ax in axes:
        for name, style in _styles(metrics):
            ax.plot(*series[name], label=name, **style)
        runs = [metrics.losses(metrics.reference, seed) for seed in metrics.seeds]
        low, high = ([pick(v) for v in zip(*runs, strict=True)] for pick in (min, max))
        ax.fill_between(range(steps), low, high, color="#888888", alpha=0.25, linewidth=0)
        ax.set(xlabel="step", ylabel="training loss (nats)")
    axes[0].set_title("mean over seeds; grey: the seeds of the reference", fontsize=10)
    axes[1].set_title("the second half, enlarged", fontsize=10)
    axes[0].legend(frameon=False, fontsize=8)
    later = [
        value
        for name in metrics.variants
        for seed in metrics.seeds
        for value in metrics.losses(name, seed)[steps // 2 :]
        if math.isfinite(value)
    ]
    axes[1].set_xlim(steps // 2, max(steps - 1, steps // 2 + 1))
    if later:
        margin = 0.05 * (max(later) - min(later)) or 0.01
        axes[1].set_ylim(min(later) - margin, max(later) + margin)
    return _png(figure)


def _apart(metrics: Metrics) -> bytes:
    figure, ax = new_figure(_FUNCTION, 10.5, 3.4)
    series = apart_series(metrics)
    for name, style in _styles(metrics):
        if name == metrics.reference:
            ax.axhline(0, **style)
        else:
            ax.plot(*series[name], label=name, **style)
    ax.set(xlabel="step", ylabel=f"loss minus that of {metrics.reference}")
    ax.set_title("mean over seeds of the difference at the same step and batch", fontsize=10)
    ax.legend(frameon=False, fontsize=8)
    return _png(figure)


def _gradient(metrics: Metrics) -> bytes:
    figure, ax = new_figure(_FUNCTION, 10.5, 3.2)
    series = gradient_series(metrics)
    for name, style in _styles(metrics):
        if name in series:
            ax.plot(*series[name], label=name, marker="o", markersize=4, **style)
    ax.set(xlabel="step", ylabel="relative difference", yscale="log")
    ax.set_title(f"gradient against that of {metrics.reference}, same parameters", fontsize=10)
    ax.legend(frameon=False, fontsize=8)
    return _png(figure)


def _gemms(metrics: Metrics) -> bytes:
    gemms, sites = (metrics.values("gemm", field) for field in ("gemm", "site"))
    names = metrics.others()
    width = max(10.5, 2.0 + 0.28 * len(sites) * len(gemms))
    figure, axes = new_figure(
        _FUNCTION, width, 1.9 + 0.34 * len(names), ncols=len(gemms), sharey=True, squeeze=False
    )
    picture = None
    for ax, gemm in zip(axes[0], gemms, strict=True):
        ax.grid(visible=False)
        shares = gemm_shares(metrics, gemm)
        percent = [[100 * x or math.nan for x in row] for row in shares]
        limits = {"vmin": 0.01, "vmax": 100}
        picture = ax.imshow(percent, norm="log", cmap="viridis", aspect="auto", **limits)
        _mark_zeros(ax, shares)
        ax.set_title(gemm, fontsize=10)
        ax.set_xticks(range(len(sites)), sites, rotation=90, fontsize=8)
        ax.set_yticks(range(len(names)), names, fontsize=9)
    figure.colorbar(picture, ax=list(axes[0]), label="outputs that differ (%)", pad=0.01)
    return _png(figure)


def _mark_zeros(ax: Any, shares: list[list[float]]) -> None:
    """Cells in which nothing differs: a logarithmic scale has no colour for them."""
    ax.set_facecolor("#eeeeee")
    zeros = ((i, j) for i, row in enumerate(shares) for j, x in enumerate(row) if x == 0)
    for i, j in zeros:
        ax.text(j, i, "0", ha="center", va="center", fontsize=8, color="#555555")


def _png(figure: Any) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=100)
    return stream.getvalue()
