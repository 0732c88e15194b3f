"""Checks a built documentation site: every local link leads somewhere, every rule number is a link.

    python tools/check_site.py build/site

Exit code 0: nothing is wrong; 1: each fault is printed, with its page.
"""

import argparse
import html.parser
import pathlib
import re
import sys
import urllib.parse
from collections.abc import Iterator

RULE = re.compile(r"(?<![\w-])R[1-9]\d?\b")
#: Text inside these may name a rule without a link.
CLOSED = {"a", "code", "h1", "h2", "h3", "h4", "pre", "script", "strong", "style", "title"}
#: Elements without an end tag.
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"}


class Page(html.parser.HTMLParser):
    """What one page links, which anchors it has, and which rules it names without a link."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.unlinked: list[str] = []
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        self.links += [values[name] for name in ("href", "src") if values.get(name)]
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data):
        if not CLOSED.intersection(self._open):
            self.unlinked += RULE.findall(data)


def faults(site: pathlib.Path) -> Iterator[str]:
    """What is wrong with the site, a line each."""
    pages = {path.resolve(): Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    if not pages:
        yield f"{site}: no page"
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        yield from (f"{name}: {rule} is not a link" for rule in page.unlinked)
        for link in page.links:
            url = urllib.parse.urlsplit(link)
            if url.scheme or url.netloc:
                continue
            file = urllib.parse.unquote(url.path)
            target = (path.parent / file).resolve() if file else path
            anchor = urllib.parse.unquote(url.fragment)
            if not target.is_file():
                yield f"{name}: {link} leads nowhere"
            elif anchor and target in pages and anchor not in pages[target].anchors:
                yield f"{name}: {link} names no anchor"


def main() -> int:
    """Prints the faults of the site that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", type=pathlib.Path, help="the folder that sphinx wrote")
    found = list(dict.fromkeys(faults(parser.parse_args().site)))
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
