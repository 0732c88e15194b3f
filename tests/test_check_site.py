"""tools/check_site.py: what it reports of a site, and what it lets pass."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # tools is no part of the installation

from tools import check_site  # noqa: E402


@pytest.fixture
def site(tmp_path):
    """A site of two pages, in which everything is right."""
    (tmp_path / "rules.html").write_text('<h1>R1</h1><p id="r1"><strong>R1.</strong> Formats</p>')
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a b.txt").write_text("")
    (tmp_path / "files" / "page.html").write_text(
        '<p><a href="../rules.html#r1">R1</a> <code>R2</code> DeepSeek-R1<br>'
        '<a href="https://example.org/none#x">out</a> <a href="#own" id="own">own</a>'
        '<a href="a%20b.txt">file</a></p>'
    )
    return tmp_path


def with_page(site: pathlib.Path, text: str) -> list[str]:
    (site / "files" / "new.html").write_text(text)
    return list(check_site.faults(site))


def test_a_site_without_faults(site):
    assert list(check_site.faults(site)) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('<a href="none.html">x</a>', "none.html leads nowhere"),
        ('<a href="../files">x</a>', "../files leads nowhere"),
        ('<img src="none.png">', "none.png leads nowhere"),
        ('<a href="../rules.html#r2">x</a>', "../rules.html#r2 names no anchor"),
        ('<a href="#none">x</a>', "#none names no anchor"),
        ("<p>see R12<br>below</p>", "R12 is not a link"),
        ("<p><code>x</code> and R3</p>", "R3 is not a link"),
    ],
)
def test_each_fault_is_found(site, text, fault):
    assert with_page(site, text) == [f"files/new.html: {fault}"]


def test_an_empty_site_is_a_fault(tmp_path):
    assert list(check_site.faults(tmp_path)) == [f"{tmp_path}: no page"]


def test_exit_codes(site):
    command = [sys.executable, check_site.__file__, str(site)]
    assert subprocess.run(command, check=False).returncode == 0
    (site / "index.html").write_text('<a href="none.html">x</a>')
    failed = subprocess.run(command, check=False, capture_output=True, text=True)
    assert failed.returncode == 1
    assert failed.stderr == "index.html: none.html leads nowhere\n"
