"""Links of the pages to files of the repository that are no pages: each such file becomes one.

A page links `../csrc/numerics/block_fma.h` as any reader of the repository would. On the site the
link leads to a page with the file's text, or with the list of a folder's files. A link to nothing
is a warning, which fails the build.
"""

import html
import pathlib
import posixpath
import re
from collections.abc import Iterator

from docutils import nodes
from pygments.lexers import find_lexer_class_for_filename
from sphinx.util import logging

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs"
#: The scheme that stands for such a link between the two events; conf.py tells MyST of it.
SCHEME = "repository"
#: Where the pages of the files are on the site.
FOLDER = "repository"

LINK = re.compile(r"\]\(((?:\.\./)+[^)\s#]*)(?:#[^)\s]*)?\)")
SHOWN = {".cc", ".cu", ".h", ".json", ".md", ".py", ".pyi", ".txt"}

logger = logging.getLogger(__name__)


def _mark_links(app, docname: str, source: list[str]) -> None:
    """Gives links that leave the folder of the pages the scheme above."""

    def mark(link: re.Match) -> str:
        target = (PAGES / posixpath.dirname(docname) / link[1]).resolve()
        if target.is_relative_to(PAGES):
            return link[0]
        if not (target.exists() and target.is_relative_to(ROOT)):
            logger.warning("no such file in the repository: %s", link[1], location=docname)
        return f"]({SCHEME}:{posixpath.relpath(target, ROOT)})"

    source[0] = LINK.sub(mark, source[0])


def _links(doctree: nodes.document) -> Iterator[tuple[nodes.reference, str]]:
    """Each marked link with the path in the repository that it names."""
    for node in doctree.findall(nodes.reference):
        scheme, _, path = node.get("refuri", "").partition(":")
        if scheme == SCHEME:
            yield node, path


def _point_links(app, doctree: nodes.document, docname: str) -> None:
    for node, path in _links(doctree):
        node["refuri"] = app.builder.get_relative_uri(docname, f"{FOLDER}/{path}")
        node["internal"] = True


def _linked_paths(app) -> set[str]:
    """What the pages link, and the files of the folders among it."""
    docs = (app.env.get_doctree(docname) for docname in app.env.found_docs)
    paths = {path for doctree in docs for _, path in _links(doctree)}
    folders = [ROOT / path for path in paths if (ROOT / path).is_dir()]
    return paths | {
        file.relative_to(ROOT).as_posix() for folder in folders for file in _files(folder)
    }


def _files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(file for file in folder.iterdir() if file.suffix in SHOWN)


def _pages_of_files(app) -> Iterator[tuple[str, dict, str]]:
    """One page for each linked file or folder (the event html-collect-pages)."""
    for path in sorted(_linked_paths(app)):
        target = ROOT / path
        if not target.exists():
            continue  # the link has been warned about
        name = f"{FOLDER}/{path}"
        body = _folder_body(app, name, target) if target.is_dir() else _file_body(app, target)
        heading = f"<h1><code>{html.escape(path)}</code></h1>"
        yield name, {"title": path, "body": heading + body}, "page.html"


def _file_body(app, file: pathlib.Path) -> str:
    lexer = find_lexer_class_for_filename(file.name)
    language = lexer.aliases[0] if lexer is not None else "text"
    return app.builder.highlighter.highlight_block(file.read_text(), language, force=True)


def _folder_body(app, name: str, folder: pathlib.Path) -> str:
    links = (
        (app.builder.get_relative_uri(name, f"{name}/{file.name}"), html.escape(file.name))
        for file in _files(folder)
    )
    items = (f'<li><a href="{uri}"><code>{text}</code></a></li>' for uri, text in links)
    return f"<ul>{''.join(items)}</ul>"


def setup(app) -> dict:
    """Registers the three events."""
    app.connect("source-read", _mark_links)
    app.connect("doctree-resolved", _point_links)
    app.connect("html-collect-pages", _pages_of_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
