"""The tutorials run, and print what docs/tutorials.md shows."""

import pathlib
import re
import runpy

import pytest

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
SCRIPTS = sorted((DOCS / "tutorials").glob("*.py"))
MAX_LINES = 120

OUTPUT = re.compile(r"^python docs/tutorials/(\w+)\.py\n```\n\n```text\n(.*?)```$", re.M | re.S)


def shown() -> dict[str, str]:
    """The output that the page shows for each script."""
    return dict(OUTPUT.findall((DOCS / "tutorials.md").read_text()))


def test_the_page_shows_every_script():
    assert sorted(shown()) == [script.stem for script in SCRIPTS]
    assert len(SCRIPTS) == 5


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_output(script, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out == shown()[script.stem]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_short(script):
    assert len(script.read_text().splitlines()) <= MAX_LINES
