"""The docs against the code: Python blocks run, cited rules exist, links and tables hold."""

import pathlib
import re
import tomllib

import pytest
import recordings

import mmaemu_jax as mj

ROOT = pathlib.Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
NUMERICS = ROOT / "docs" / "numerics.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
LINKED_PAGES = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]

#: Where rules are cited, and in which files.
CITING_FOLDERS = ("mmaemu_jax", "csrc", "tests", "tools", "docs")
CITING_SUFFIXES = {".py", ".pyi", ".h", ".cc", ".cu", ".cuh", ".md"}
README_LINES = 150

RULE = re.compile(r"\bR([1-9]\d?)\b")
RULE_DEFINITION = re.compile(r"^\*\*R(\d+)\.\*\*", re.MULTILINE)
RULE_ANCHOR = re.compile(r'^<a id="r(\d+)"></a>\n\*\*R(\d+)\.\*\*', re.MULTILINE)
ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANY_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
#: What a Python block prints, right behind it.
SHOWN = re.compile(r"\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: Pages on which every block needs the first one and no other.
SHARED_BEGINNING = {"faq.md"}


def page_id(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python_blocks(path: pathlib.Path) -> list[tuple[str, str | None]]:
    """The Python blocks of a page, each moved to its own line so that tracebacks point there.

    With each: the output that the page shows, or None where it shows none.
    """
    text, blocks = path.read_text(), []
    for block in PYTHON_BLOCK.finditer(text):
        shown = SHOWN.match(text, block.end())
        code = "\n" * text.count("\n", 0, block.start(1)) + block[1]
        blocks.append((code, shown and shown[1]))
    return blocks


@pytest.mark.parametrize("path", [p for p in PAGES if python_blocks(p)], ids=page_id)
def test_python_blocks_run_and_print_what_is_shown(path, capsys):
    def run(code: str) -> None:
        exec(compile(code, str(path), "exec"), namespace)

    namespace = {"__name__": path.stem}
    blocks = python_blocks(path)
    beginning = blocks.pop(0)[0] if path.name in SHARED_BEGINNING else None
    for block, shown in blocks:
        if beginning is not None:
            namespace = {"__name__": path.stem}
            run(beginning)
        run(block)
        printed = capsys.readouterr().out
        assert shown is None or printed == shown


def test_rules_are_numbered_without_gaps():
    numbers = [int(n) for n in RULE_DEFINITION.findall(NUMERICS.read_text())]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) == 26
    anchors_and_rules = [(int(a), int(r)) for a, r in RULE_ANCHOR.findall(NUMERICS.read_text())]
    assert anchors_and_rules == [(n, n) for n in numbers]


def test_every_cited_rule_exists():
    rules = set(RULE_DEFINITION.findall(NUMERICS.read_text()))
    cited = {}
    for path in (p for folder in CITING_FOLDERS for p in (ROOT / folder).rglob("*")):
        if path.suffix in CITING_SUFFIXES:
            cited |= dict.fromkeys(RULE.findall(path.read_text()), path)
    assert {rule: page_id(path) for rule, path in cited.items() if rule not in rules} == {}
    assert len(cited) > 20, "the scan found too few citations to mean anything"


def anchors(path: pathlib.Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page, and those that it sets itself."""
    text = ANY_BLOCK.sub("", path.read_text())
    return {slug(heading) for heading in HEADING.findall(text)} | set(ANCHOR.findall(text))


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-")


@pytest.mark.parametrize("path", LINKED_PAGES, ids=page_id)
def test_links_resolve(path):
    broken = []
    for link in LINK.findall(ANY_BLOCK.sub("", path.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_readme_is_short():
    assert len(README.read_text().splitlines()) <= README_LINES


def test_version_is_the_changelogs_top_entry():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    top = re.search(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert top is not None
    assert top[1] == version


def test_api_page_lists_every_public_name():
    text = (ROOT / "docs" / "api.md").read_text()
    listed = set(re.findall(r"^\.\. auto\w+:: (?:mmaemu_jax\.)?(\w+)", text, re.MULTILINE))
    source = (ROOT / "mmaemu_jax" / "__init__.py").read_text()
    public = set(re.findall(r"^\s*from mmaemu_jax\S* import (\w+) as \1$", source, re.MULTILINE))
    assert len(public) > 20
    assert listed == public


def table_rows(path: pathlib.Path, first: str) -> dict[str, list[str]]:
    """Rows of the table whose head starts with ``first``, by the name in their first cell."""
    lines = iter(path.read_text().splitlines())
    next(line for line in lines if line.startswith(f"| {first} |"))
    next(lines)
    rows = {}
    for line in lines:
        if not line.startswith("|"):
            return rows
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        rows[name.split("`")[1]] = cells
    return rows


def test_table_of_presets():
    presets = [mj.get_preset(name) for name in mj.list_presets()]
    assert table_rows(NUMERICS, "preset") == {
        p.name: [
            *map(str, (p.nfma, p.frac, p.frac_out, p.min_exp)),
            "late" if p.late_c else "early",
            "none" if p.slow_chunk is None else str(p.slow_chunk),
            p.evidence,
        ]
        for p in presets
    }


def test_table_of_profiles():
    rows = table_rows(ROOT / "docs" / "evidence.md", "profile")
    assert tuple(rows) == mj.list_profiles()
    for name, (preset, _, unsplit, split) in rows.items():
        profile = mj.get_profile(name)
        assert preset == f"`{profile.arithmetic.name}`"
        assert (unsplit, split) == (profile.evidence, profile.split_evidence)


def test_table_of_gpus_names_every_profile():
    page = (ROOT / "docs" / "platforms.md").read_text()
    rows = page.partition("| GPU | profile |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [row.split("|")[2] for row in rows]
    named = {name for cell in cells for name in re.findall(r"`([\w-]+)`", cell)} - {"tcgen05"}
    assert named == {name for name in mj.list_profiles() if not name.endswith("-ws0")}
    assert len(rows) >= 10


def test_table_of_recordings():
    rows = table_rows(ROOT / "docs" / "evidence.md", "set")
    assert {name: int(cases) for name, (cases, _) in rows.items()} == recordings.CASES
    computed = recordings.CASES["h100_oracle"]
    measured = sum(recordings.CASES.values()) - computed
    said = re.sub(r"\s+", " ", README.read_text())
    assert f"{measured:,} recorded cases bit for bit, and {computed} that mmaemu's model" in said
