"""The report directory: plots and the page, from the lines alone."""

import pathlib
from typing import Any

from mmaemu_jax.atomic_file import write_bytes_atomically
from mmaemu_jax.plotting import have_matplotlib
from mmaemu_jax.training.comparison.figures import Metrics, all_figures
from mmaemu_jax.training.comparison.markup import Shown
from mmaemu_jax.training.comparison.page import render
from mmaemu_jax.training.comparison.plots import all_plots


def write_report(
    directory: pathlib.Path, lines: list[dict[str, Any]], config: dict[str, Any]
) -> pathlib.Path:
    """Writes index.html and, where matplotlib is installed, a PNG per plot; returns the page."""
    metrics = Metrics(lines, config["reference"], config["controls"])
    shown = Shown(all_figures(metrics))
    plots = all_plots(metrics) if have_matplotlib() else {}
    for name, png in plots.items():
        write_bytes_atomically(directory / f"{name}.png", png)
    page = directory / "index.html"
    write_bytes_atomically(page, render(metrics, shown, config, plots).encode())
    return page
