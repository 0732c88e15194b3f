"""matplotlib, which is an extra: imported where a figure is drawn, never before."""

import importlib
import importlib.util
from typing import Any

from mmaemu_jax.errors import message

#: Colours that stay apart for colour-blind readers (Okabe and Ito), black last.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999", "#000000")


def have_matplotlib() -> bool:
    """Whether figures can be drawn here."""
    return importlib.util.find_spec("matplotlib") is not None


def new_figure(function: str, width: float, height: float, **subplots) -> tuple[Any, Any]:
    """A figure of that size in inches and its axes, without pyplot's global state.

    Args:
        function: who draws, for the error.
        width, height: in inches.
        subplots: as for ``Figure.subplots``.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    if not have_matplotlib():
        raise ModuleNotFoundError(
            message(
                f"{function}: drawing needs matplotlib, which is not installed.",
                [
                    "pip install matplotlib, or this package's extra 'plots'",
                    "use the numbers: they need no plot",
                ],
            ),
            name="matplotlib",
        )
    figure = importlib.import_module("matplotlib.figure").Figure(
        figsize=(width, height), layout="constrained"
    )
    axes = figure.subplots(**subplots)
    for ax in figure.axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(visible=True, color="#dddddd", linewidth=0.6)
        ax.set_axisbelow(True)
    return figure, axes
