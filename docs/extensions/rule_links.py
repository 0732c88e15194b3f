"""Every rule number in prose (R12) links to the rule.

numerics.md marks its rules with `<a id="r12"></a>`, which are anchors on GitHub too. Headings,
code, bold text and what is a link already stay as they are.
"""

import re

from docutils import nodes
from sphinx import addnodes

#: The page with the rules.
PAGE = "numerics"
RULE = re.compile(r"(?<![\w-])R([1-9]\d?)\b")
ANCHOR = re.compile(r'<a id="(r\d+)">')
#: Text inside these stays.
CLOSED = (
    nodes.FixedTextElement,
    nodes.literal,
    nodes.math,
    nodes.raw,
    nodes.reference,
    nodes.strong,
    nodes.title,
    addnodes.desc_signature,
)


def _note_anchors(app, doctree: nodes.document) -> None:
    """Tells MyST of the rules' anchors, so that `numerics.md#r12` is a link that it knows."""
    env = app.env
    if env.docname == PAGE:
        anchors = (match for raw in doctree.findall(nodes.raw)
                   for match in ANCHOR.findall(raw.astext()))  # fmt: skip
        slugs = {anchor: (0, anchor, anchor.upper()) for anchor in anchors}
        env.metadata[PAGE].setdefault("myst_slugs", {}).update(slugs)


def _link_rules(app, doctree: nodes.document, docname: str) -> None:
    page = app.builder.get_relative_uri(docname, PAGE) if docname != PAGE else ""
    rules = app.env.metadata[PAGE]["myst_slugs"]
    for text in list(doctree.findall(nodes.Text)):
        if RULE.search(text) and not _is_closed(text):
            text.parent.replace(text, _with_links(str(text), page, rules))


def _is_closed(node: nodes.Node) -> bool:
    while node.parent is not None:
        node = node.parent
        if isinstance(node, CLOSED):
            return True
    return False


def _with_links(text: str, page: str, rules: dict) -> list[nodes.Node]:
    """``text`` in parts, each rule in it a link; a number that is no rule stays text."""
    parts, end = [], 0
    for match in RULE.finditer(text):
        anchor = f"r{match[1]}"
        if anchor in rules:
            uri = f"{page}#{anchor}"
            link = nodes.reference(match[0], match[0], refuri=uri, internal=True)
            parts += [nodes.Text(text[end : match.start()]), link]
            end = match.end()
    return [*parts, nodes.Text(text[end:])]


def setup(app) -> dict:
    """Registers the two events."""
    app.connect("doctree-read", _note_anchors)
    app.connect("doctree-resolved", _link_rules)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
