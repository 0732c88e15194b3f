"""What became of every mutant, as docs/validation/mutation/<language>.json keeps it.

A file's results are grouped by the text of the line; one line of JSON holds one line of source.
"""

import collections
import dataclasses
import json
import pathlib

from tools.mutation.mutant import ROOT, Mutant

FOLDER = ROOT / "docs" / "validation" / "mutation"

#: killed: a test failed. timeout: a test ran far longer than it does; counted as killed.
#: uncompilable: no program. identical: the compiler makes the same program of it.
#: survived: every test passed; tools/mutation/equivalent says of some why none can fail.
STATUSES = ("killed", "timeout", "uncompilable", "identical", "survived")


@dataclasses.dataclass(frozen=True)
class Result:
    """The status of one mutant and, where it was killed, the test file that did it."""

    status: str
    by: str = ""

    def __post_init__(self):
        if self.status not in STATUSES or bool(self.by) != (self.status == "killed"):
            raise ValueError(f"Result: not a result: {self.status!r} by {self.by!r}.")


@dataclasses.dataclass
class FileResults:
    """The results of one file.

    Attributes:
        mutants: how many mutants the file had when it was last run.
        left_out: how many lines of code it had then that are not compiled where it was run.
        results: by (text of the line, edit), as :class:`Mutant` names them.
    """

    mutants: int = 0
    left_out: int = 0
    results: dict[tuple[str, str], Result] = dataclasses.field(default_factory=dict)

    def get(self, mutant: Mutant) -> Result | None:
        """The result of a mutant, None if it has not been run."""
        return self.results.get((mutant.text, mutant.edit))

    def set(self, mutant: Mutant, result: Result) -> None:
        self.results[mutant.text, mutant.edit] = result

    def keep(self, mutants: list[Mutant]) -> None:
        """Forgets what is no mutant of the file any more; ``mutants`` are all of them."""
        self.mutants = len(mutants)
        names = [(m.text, m.edit) for m in mutants]
        self.results = {name: self.results[name] for name in names if name in self.results}


@dataclasses.dataclass
class Results:
    """The results of one language.

    Attributes:
        language: "python" or "cpp".
        files: every file that is to be covered, run or not, by its path.
        run: what the results were made with (versions, machine), as the page shows it.
    """

    language: str
    files: dict[str, FileResults] = dataclasses.field(default_factory=dict)
    run: dict[str, str] = dataclasses.field(default_factory=dict)


def path_of(language: str) -> pathlib.Path:
    return FOLDER / f"{language}.json"


def load(path: pathlib.Path) -> Results:
    """The results in a file; none if there is no file yet."""
    if not path.exists():
        return Results(path.stem)
    data = json.loads(path.read_text())
    files = {file: _file_results(entry) for file, entry in data["files"].items()}
    return Results(path.stem, files, data["run"])


def save(results: Results, path: pathlib.Path) -> None:
    """Writes the results; replaces the file at once, so that an interruption loses none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files = ",\n".join(
        f"{json.dumps(file)}: {_text_of(entry)}" for file, entry in sorted(results.files.items())
    )
    new = path.with_suffix(".new")
    new.write_text(f'{{"run": {json.dumps(results.run)},\n"files": {{\n{files}\n}}}}\n')
    new.replace(path)


def _text_of(entry: FileResults) -> str:
    """One file: "killers" numbers the test files, "lines" says what became of each edit."""
    killers = sorted({result.by for result in entry.results.values() if result.by})
    lines: dict[str, dict] = collections.defaultdict(dict)
    for (text, edit), result in entry.results.items():
        lines[text][edit] = killers.index(result.by) if result.by else result.status
    rows = ",\n".join(f"  {_json(text)}: {_json(edits)}" for text, edits in lines.items())
    left_out = f'"left_out": {entry.left_out}, ' if entry.left_out else ""
    head = f'{{"mutants": {entry.mutants}, {left_out}"killers": {json.dumps(killers)}, "lines": {{'
    return f"{head}\n{rows}}}}}" if rows else f"{head}}}}}"


def _json(value) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _file_results(entry: dict) -> FileResults:
    results = {}
    for text, edits in entry["lines"].items():
        for edit, found in edits.items():
            killed = isinstance(found, int)
            result = Result("killed", entry["killers"][found]) if killed else Result(found)
            results[text, edit] = result
    return FileResults(entry["mutants"], entry.get("left_out", 0), results)
