"""tools/mutation: its mutants, their names, and that the committed results explain everything."""

import functools
import pathlib
import sys
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # tools is no part of the installation

from tools.mutation import equivalents, report, results  # noqa: E402
from tools.mutation.__main__ import pending_mutants  # noqa: E402
from tools.mutation.mutant import make_mutants  # noqa: E402
from tools.mutation.python_replace import module_name  # noqa: E402
from tools.mutation.python_sites import mutants_of  # noqa: E402
from tools.mutation.python_targets import OUTSIDE, TARGETS  # noqa: E402
from tools.mutation.results import FileResults, Result, Results  # noqa: E402

SOURCE = '''
def f(x: int | None, é=(1, 2)) -> "int | None":
    """No site: 1 + 1."""
    assert x is not None, 3
    if x >= 2 and not é:
        raise ValueError(f"{x + 1}")
    x <<= 4
    return -x // max(x, 0) if g else zip(é, é, strict=True)
'''

EDITS = [
    "1 -> 2", "1 -> 0", "2 -> 3", "2 -> 1", "2 -> 0",
    "x >= 2 and not é -> True", "x >= 2 and not é -> False",
    ">= -> >", ">= -> <", "2 -> 3", "2 -> 1", "2 -> 0", "and -> or", "not -> nothing",
    "ValueError -> ArithmeticError",
    "<<= -> >>=", "4 -> 5", "4 -> 3", "4 -> 0",
    "- -> nothing", "// -> /", "// -> *", "max -> min", "0 -> 1", "0 -> (-1)",
    "g -> True", "g -> False",
]  # fmt: skip


def test_sites_of_a_python_source():
    mutants = mutants_of("f.py", SOURCE)
    assert sorted(m.edit for m in mutants) == sorted(EDITS)
    for mutant in mutants:
        changed = mutant.apply(SOURCE)
        compile(changed, "f.py", "exec")
        assert changed != SOURCE
        line = changed.splitlines()[mutant.line - 1]
        assert line[mutant.column :].startswith(mutant.after)


def test_an_edit_that_no_longer_fits_is_refused():
    mutant = mutants_of("f.py", "x = 1 + 2\n")[0]
    with pytest.raises(ValueError, match="no longer has"):
        mutant.apply("x = y + 2\n")


def test_names_survive_edits_elsewhere():
    source = "a = b + c\nif d:\n    a = b + c\n"
    ids = [m.id for m in mutants_of("f.py", source)]
    assert len(set(ids)) == len(ids)
    assert "f.py | a = b + c | + -> -" in ids
    assert "f.py | a = b + c | + -> - #2" in ids
    moved = "import x\n\n\n" + source.replace("d:", "d and e:").replace("    a", "        a")
    assert {i for i in ids if "b + c" in i} <= {m.id for m in mutants_of("f.py", moved)}


def test_equal_edits_are_one_mutant():
    assert len(make_mutants("f.py", "x", [(1, 0, "x", "y"), (1, 0, "x", "y")])) == 1


def test_module_names():
    assert module_name("mmaemu_jax/reference/_f64.py") == "mmaemu_jax.reference._f64"
    assert module_name("mmaemu_jax/reference/__init__.py") == "mmaemu_jax.reference"


def made_up() -> tuple[Results, dict[str, str]]:
    """Results of a run: one file with everything that can become of a mutant, one without any."""
    mutants = mutants_of("f.py", "x = 1 + 2 | y\n")
    entry = FileResults(len(mutants) + 1)
    statuses = ["timeout", "uncompilable", "identical", "survived", "survived"]
    outcomes = [Result(status) for status in statuses] + [Result("killed", "tests/test_x.py")] * 9
    for mutant, result in zip(mutants, outcomes, strict=False):
        entry.set(mutant, result)
    found = Results("python", {"f.py": entry, "g.py": FileResults(0, 7)}, {"Python": "3"})
    return found, {mutants[4].id: "It is so."}


def test_results_survive_saving(tmp_path):
    found, _ = made_up()
    results.save(found, tmp_path / "python.json")
    assert results.load(tmp_path / "python.json") == found


def test_the_report_tells_survivors_proofs_and_what_was_not_run():
    found, proofs = made_up()
    entry = found.files["f.py"]
    survived = [report.mutant_id("f.py", *n) for n, r in entry.results.items() if not r.by][3]
    assert report.survivors(found, proofs) == [survived]
    assert report.wrong_proofs(found, proofs) == []
    assert report.wrong_proofs(found, {**proofs, "f.py | x | y": "Gone."}) == ["f.py | x | y"]
    counts = report.counts(entry, "f.py", proofs)
    assert counts == {
        "mutants": entry.mutants,
        "killed": len(entry.results) - 4,
        "no program": 1,
        "identical": 1,
        "equivalent": 1,
        "survived": 1,
        "not run": 1,
    }
    text = "\n".join(report.language_section(found, proofs))
    assert "Not covered: `g.py`." in text
    assert "\n`g.py` 7." in text
    assert "Survived:" in text
    assert "`tests/test_x.py`" in text


def test_what_a_run_takes_up():
    """Survivors, those with a proof on request, and what has no result."""
    found, proofs = made_up()
    mutants = mutants_of("f.py", "x = 1 + 2 | y\n")
    language = types.SimpleNamespace(mutants=lambda file: mutants)
    pending = functools.partial(pending_mutants, language, found.files["f.py"], "f.py")
    assert pending(proofs) == [mutants[3]]
    assert pending({}) == mutants[3:5]
    found.files["f.py"].results.clear()
    assert pending(proofs) == mutants


def test_a_proof_is_given_once(tmp_path):
    group = '[[equivalent]]\nwhy = "So."\nmutants = ["a", "b"]\n'
    (tmp_path / "python.toml").write_text(group)
    assert equivalents.proofs("python", tmp_path) == {"a": "So.", "b": "So."}
    (tmp_path / "python.toml").write_text(group * 2)
    with pytest.raises(ValueError, match="two proofs"):
        equivalents.proofs("python", tmp_path)


def test_every_file_of_the_package_is_mutated_or_said_not_to_be():
    package = ROOT / "mmaemu_jax"
    files = {str(path.relative_to(ROOT)) for path in package.rglob("*.py")}
    outside = [f"mmaemu_jax/{path}" for paths in OUTSIDE.values() for path in paths]
    assert len(set(outside)) == len(outside)
    assert [path for path in outside if not (ROOT / path).exists()] == []
    left_out = {file for file in files for path in outside if file.startswith(path)}
    assert left_out.isdisjoint(TARGETS)
    assert left_out | set(TARGETS) == files


def test_the_page_is_generated():
    assert report.PAGE.read_text() == report.page(report.load_all())


@functools.cache
def committed(language: str) -> tuple[Results, dict[str, str]]:
    return results.load(results.path_of(language)), equivalents.proofs(language)


LANGUAGES = [name for name in report.LANGUAGES if results.path_of(name).exists()]


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_survivor_is_unexplained(language):
    assert report.survivors(*committed(language)) == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_counts_are_those_of_the_sources(language):
    """What has changed since is "not run" on the page: `python -m tools.mutation --report`."""
    found, _ = committed(language)
    module = __import__(f"tools.mutation.{language}", fromlist=["mutants"])
    counts = {file: len(module.mutants(file)) for file in module.files()}
    assert {file: entry.mutants for file, entry in found.files.items()} == counts


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_proof_is_stale(language):
    found, proofs = committed(language)
    assert report.wrong_proofs(found, proofs) == []
    module = __import__(f"tools.mutation.{language}", fromlist=["mutants"])
    files = {name.split(" | ", 1)[0] for name in proofs}
    present = {mutant.id for file in files for mutant in module.mutants(file)}
    assert set(proofs) <= present
