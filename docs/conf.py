"""The documentation site: `make docs` builds it, with warnings as errors."""

import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs" / "extensions"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

project = PROJECT["name"]
author = PROJECT["authors"][0]["name"]
release = version = PROJECT["version"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "repository_links",
    "rule_links",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "README.md"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4
myst_url_schemes = ["http", "https", "mailto", "repository"]
nitpicky = False
autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_google_docstring = True

html_theme = "furo"
html_title = f"{project} {release}"
html_show_sourcelink = False

# Leading dimensions are written *L in docstrings, which is no markup; literals stay as they are.
LITERAL_OR_LEADING = re.compile(r"(``.*?``)|\*L\b")


def _escape_leading_dimensions(app, what, name, obj, options, lines) -> None:
    lines[:] = [LITERAL_OR_LEADING.sub(lambda m: m[1] or r"\*L", line) for line in lines]


def setup(app) -> None:
    app.connect("autodoc-process-docstring", _escape_leading_dimensions)
