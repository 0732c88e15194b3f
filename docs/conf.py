"""The documentation site: `make docs` builds it, with warnings as errors."""

import pathlib
import re
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

project = PROJECT["name"]
author = PROJECT["authors"][0]["name"]
release = version = PROJECT["version"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "README.md"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4
nitpicky = False
autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_google_docstring = True

html_theme = "furo"
html_title = f"{project} {release}"
html_show_sourcelink = False

# A link to a file of the repository that is no page of the site: its name stays, as text.
OUTSIDE = re.compile(r"\[([^\]\n]+)\]\((?:\.\./)+(?!docs/)[^)\s]*\)")


def _unlink_repository_files(app, docname, source) -> None:
    source[0] = OUTSIDE.sub(r"\1", source[0])


# Leading dimensions are written *L in docstrings, which are no markup.
LEADING = re.compile(r"(?<![`\\])\*L\b(?!`)")


def _escape_leading_dimensions(app, what, name, obj, options, lines) -> None:
    lines[:] = [line if "``" in line else LEADING.sub(r"\\*L", line) for line in lines]


def setup(app) -> None:
    app.connect("source-read", _unlink_repository_files)
    app.connect("autodoc-process-docstring", _escape_leading_dimensions)
