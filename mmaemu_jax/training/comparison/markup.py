"""Small pieces of HTML; a number that was measured carries the name of its figure."""

import base64
import html
import math
import re
import textwrap
from collections.abc import Iterable, Sequence

from mmaemu_jax.training.comparison.figures import Figures

_TAG = re.compile(r"<[^>]+>")


class Shown:
    """Formats figures for the page, each with its name and format, so that it can be recomputed."""

    def __init__(self, figures: Figures):
        self.figures = figures

    def __call__(self, name: str, form: str = "") -> str:
        """The figure as HTML; KeyError for a figure there is not."""
        return (
            f'<span class="f" data-figure="{html.escape(name)}" data-format="{form}">'
            f"{html.escape(text_of(self.figures[name], form))}</span>"
        )

    def percent(self, name: str) -> str:
        """The figure as a percentage, with more digits where two would show nothing."""
        value = self.figures[name]
        tiny = isinstance(value, float) and 0 < abs(value) < 5e-4
        return self(name, ".5%" if tiny else ".2%")


def text_of(value: float | int | str | None, form: str) -> str:
    """``value`` as the page shows it."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "not finite"
    return value if isinstance(value, str) else format(value, form)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers_from: int = 1) -> str:
    """A table of HTML cells; columns from ``numbers_from`` on are right-aligned."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if i >= numbers_from else ''}>{cell}</{tag}>"
            for i, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>\n" for row in rows)
    return (
        f'<div class="scroll"><table><thead><tr>{cells("th", head)}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def image(png: bytes, alt: str) -> str:
    """An image inside the page."""
    data = base64.b64encode(png).decode()
    return f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{data}">'


def items(sentences: Iterable[str]) -> str:
    """A list."""
    return "<ul>" + "".join(f"<li>{sentence}</li>\n" for sentence in sentences) + "</ul>"


def plain_text(sentences: Iterable[str], width: int = 96) -> str:
    """The sentences without their markup, wrapped, each a bullet."""
    texts = (html.unescape(_TAG.sub("", sentence)) for sentence in sentences)
    return "\n".join(
        textwrap.fill(text, width, initial_indent="- ", subsequent_indent="  ") for text in texts
    )
