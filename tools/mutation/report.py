"""Writes docs/validation/mutation.md from the results and the proofs; nobody types a figure."""

import collections
import pathlib

from tools.mutation import equivalents, results
from tools.mutation.mutant import ROOT
from tools.mutation.python_targets import OUTSIDE
from tools.mutation.results import FileResults, Results

PAGE = ROOT / "docs" / "validation" / "mutation.md"

LANGUAGES = {"python": "Python", "cpp": "C++"}

HEAD = """# Mutation tests

A mutant is the program with one operator or constant changed. Where a test fails on it, that test
would have seen the same mistake made by a person: the mutant is killed. Where none fails, either a
test is missing or no input can tell the two programs apart, and then the proof is below.

This page is written by [tools/mutation/report.py](../../tools/mutation/report.py) from the results
in `docs/validation/mutation` and the proofs in `tools/mutation/equivalent`. `make mutation` runs
what has no result yet and what survived, then writes the page; `make mutation MUTATION=--proved`
runs what is proved equivalent, too, and `--again` forgets the results and runs everything (hours).
Run on request, never by CI.

| column | means |
|---|---|
| killed | a test failed, or ran so much longer than it does that it was stopped |
| no program | the compiler refused it |
| identical | the compiler makes the same program of it |
| equivalent | every test passed, and no input can tell: [proofs](#proofs) |
| survived | every test passed, and nobody knows why |
| not run | has no result yet |
"""

LEFT_OUT = """Lines without mutants, as they are compiled only for a GPU or another processor
(branches of `#if`, launch bounds). CUDA kernels are run on the CPU, from their own sources
([cuda_on_cpu.h](../../csrc/tests/cuda_on_cpu.h)); what stands for a GPU's instructions there
belongs to the test, and is not mutated either:"""

COLUMNS = ("mutants", "killed", "no program", "identical", "equivalent", "survived", "not run")
CELL = {"killed": "killed", "timeout": "killed", "uncompilable": "no program"}


def mutant_id(file: str, text: str, edit: str) -> str:
    """The id of :class:`tools.mutation.mutant.Mutant`, from how results are kept."""
    return f"{file} | {text} | {edit}"


def statuses(entry: FileResults, file: str, proofs: dict[str, str]) -> dict[str, str]:
    """Of each mutant of a file that was run, by id, its status; "equivalent" where proved."""
    return {
        name: "equivalent" if result.status == "survived" and name in proofs else result.status
        for (text, edit), result in entry.results.items()
        for name in [mutant_id(file, text, edit)]
    }


def survivors(found: Results, proofs: dict[str, str]) -> list[str]:
    """The ids of mutants that nothing explains."""
    return [
        name
        for file, entry in found.files.items()
        for name, status in statuses(entry, file, proofs).items()
        if status == "survived"
    ]


def wrong_proofs(found: Results, proofs: dict[str, str]) -> list[str]:
    """The ids of mutants that are proved equivalent but were killed, or have no result."""
    known = {}
    for file, entry in found.files.items():
        known |= statuses(entry, file, proofs)
    return [name for name in proofs if known.get(name) != "equivalent"]


def counts(entry: FileResults, file: str, proofs: dict[str, str]) -> dict[str, int]:
    """The cells of a file's row."""
    count = collections.Counter(
        CELL.get(status, status) for status in statuses(entry, file, proofs).values()
    )
    not_run = entry.mutants - len(entry.results)
    return {**{c: count[c] for c in COLUMNS}, "mutants": entry.mutants, "not run": not_run}


def most_killed_by(entry: FileResults) -> str:
    """The test file that killed the most mutants of a file."""
    killers = collections.Counter(result.by for result in entry.results.values() if result.by)
    return f"`{min(killers, key=lambda k: (-killers[k], k))}`" if killers else ""


def table(found: Results, proofs: dict[str, str]) -> list[str]:
    """A language's files, one row each, and their sum."""
    rows = [("file", *COLUMNS, "most killed by"), ("---",) * (len(COLUMNS) + 2)]
    total: collections.Counter[str] = collections.Counter()
    for file, entry in sorted(found.files.items()):
        cells = counts(entry, file, proofs)
        total.update(cells)
        if entry.mutants:
            rows.append((f"`{file}`", *map(str, cells.values()), most_killed_by(entry)))
    rows.append(("all", *(str(total[column]) for column in COLUMNS), ""))
    return ["| " + " | ".join(cells) + " |" for cells in rows]


def listed(found: Results, ids: list[str]) -> list[str]:
    """Mutants as list items; those without a result by their id alone."""
    parts = {
        mutant_id(file, *name): (file, *name)
        for file, entry in found.files.items()
        for name in entry.results
    }
    items = []
    for name in ids:
        file, text, edit = parts.get(name, ("no result", name, ""))
        items.append(f"- `{file}`: {_code(text)}, {_code(edit)}")
    return items


def _code(text: str) -> str:
    """A code span, which may hold backquotes."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def language_section(found: Results, proofs: dict[str, str]) -> list[str]:
    """The table of one language, what it was run with, what is not covered, what survived."""
    lines = ["", f"## {LANGUAGES[found.language]}", "", *table(found, proofs), ""]
    lines += [", ".join(f"{name} {value}" for name, value in found.run.items()) + "."]
    if missing := [f"`{file}`" for file, entry in sorted(found.files.items()) if not entry.mutants]:
        lines += ["", f"Not covered: {', '.join(missing)}."]
    files = sorted(found.files.items())
    if left_out := [f"`{file}` {entry.left_out}" for file, entry in files if entry.left_out]:
        lines += ["", LEFT_OUT, "", ", ".join(left_out) + "."]
    if found.language == "python":
        lines += ["", "Not mutated, of `mmaemu_jax`:", "", *outside()]
    if unexplained := survivors(found, proofs):
        lines += ["", "Survived:", "", *listed(found, unexplained)]
    return lines


def outside() -> list[str]:
    """List items: each reason not to mutate a part of the package, and the parts."""
    return [
        f"- {why}: {', '.join(f'`{path}`' for path in paths)}" for why, paths in OUTSIDE.items()
    ]


def proof_section(found: Results, proofs: dict[str, str]) -> list[str]:
    """Each reason and the mutants it explains."""
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for name, why in proofs.items():
        groups[why].append(name)
    lines = ["", f"### {LANGUAGES[found.language]}: equivalent mutants"] if groups else []
    for why, names in groups.items():
        lines += ["", why, "", *listed(found, names)]
    return lines


def page(all_results: list[Results], folder: pathlib.Path = equivalents.FOLDER) -> str:
    """The text of docs/validation/mutation.md."""
    lines = [HEAD.rstrip()]
    proofs = {found.language: equivalents.proofs(found.language, folder) for found in all_results}
    for found in all_results:
        lines += language_section(found, proofs[found.language])
    lines += ["", "## Proofs"]
    for found in all_results:
        lines += proof_section(found, proofs[found.language])
    return "\n".join(lines) + "\n"


def load_all() -> list[Results]:
    """The committed results, of every language that has some."""
    paths = [results.path_of(language) for language in LANGUAGES]
    return [results.load(path) for path in paths if path.exists()]


def write() -> None:
    PAGE.write_text(page(load_all()))
