"""Runs mutants that have no result yet and those that survived, then writes the page.

    python -m tools.mutation [--language python] [--minutes 60] [--again | --proved] [FILE ...]
    python -m tools.mutation --list | --survivors | --report [FILE ...]
    python -m tools.mutation --show ID

Results are saved as they come, so that a run can be interrupted and started again. Exit code 1:
a mutant of the chosen files survived without a proof, or a proof is wrong.
"""

import argparse
import collections
import difflib
import importlib
import time
from collections.abc import Iterator
from typing import Protocol, cast

from tools.mutation import equivalents, report, results
from tools.mutation.mutant import ROOT, Mutant
from tools.mutation.progress import Progress
from tools.mutation.results import FileResults, Result, Results


class Language(Protocol):
    """What tools.mutation.<language> offers."""

    def files(self) -> list[str]:
        """The files to be covered, most wanted first."""
        ...

    def mutants(self, file: str) -> list[Mutant]:
        """All mutants of a file."""
        ...

    def left_out(self, file: str) -> int:
        """How many lines of code of a file have no mutants, as they are not compiled here."""
        ...

    def run(self, mutants: list[Mutant]) -> Iterator[tuple[Mutant, Result]]:
        """Tests mutants of one file, in any order; closing the iterator ends it."""
        ...

    def versions(self) -> dict[str, str]:
        """What results depend on besides the sources."""
        ...


def main() -> int:
    arguments = parse()
    languages = [arguments.language] if arguments.language else list(report.LANGUAGES)
    if arguments.report:
        for name in report.LANGUAGES:
            results.save(counted(name, load_language(name)), results.path_of(name))
        report.write()
        return 0
    failed = False
    end = time.monotonic() + 60 * arguments.minutes
    for name in languages:
        language = load_language(name)
        files = [f for f in language.files() if not arguments.files or f in arguments.files]
        if arguments.list or arguments.show:
            show(language, files, arguments.show)
        elif arguments.survivors:
            print_survivors(results.load(results.path_of(name)), files)
        else:
            failed |= not run(name, language, files, end, arguments)
    if not (arguments.list or arguments.show or arguments.survivors):
        report.write()
    return int(failed)


def load_language(name: str) -> Language:
    return cast(Language, importlib.import_module(f"tools.mutation.{name}"))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutation", description=str(__doc__).splitlines()[0]
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="only these source files")
    parser.add_argument("--language", choices=list(report.LANGUAGES), help="only this language")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after this time")
    parser.add_argument("--again", action="store_true", help="forget the results of the files")
    parser.add_argument("--proved", action="store_true", help="run those proved equivalent, too")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    parser.add_argument("--show", metavar="ID", help="print the mutant of that id as a diff")
    parser.add_argument("--survivors", action="store_true", help="print them as a list of TOML")
    parser.add_argument("--report", action="store_true", help="write the page, run nothing")
    return parser.parse_args()


def show(language: Language, files: list[str], wanted: str | None) -> None:
    """Prints every mutant, or the wanted one as a diff."""
    for file in files:
        source = (ROOT / file).read_text()
        for mutant in language.mutants(file):
            if wanted is None:
                print(mutant)
            elif mutant.id == wanted:
                changed = mutant.apply(source).splitlines()
                print(*difflib.unified_diff(source.splitlines(), changed, n=1), sep="\n")


def print_survivors(found: Results, files: list[str]) -> None:
    """Prints what nothing explains, in the form of tools/mutation/equivalent."""
    for name in report.survivors(found, equivalents.proofs(found.language)):
        if name.split(" | ", 1)[0] in files:
            print(f"  '''{name}''',")


def counted(name: str, language: Language) -> Results:
    """The results, with the mutants of every file as it is now: a changed line has none."""
    found = results.load(results.path_of(name))
    found.files = {file: found.files.get(file, FileResults()) for file in language.files()}
    for file, entry in found.files.items():
        entry.left_out = language.left_out(file)
        entry.keep(language.mutants(file))
    return found


def run(
    name: str, language: Language, files: list[str], end: float, arguments: argparse.Namespace
) -> bool:
    """Runs the pending mutants of the files; False if one survives or a proof is wrong."""
    path = results.path_of(name)
    found = counted(name, language)
    found.run = language.versions()
    proofs = equivalents.proofs(name)
    if arguments.again:
        for file in files:
            found.files[file].results.clear()
    explained = {} if arguments.proved else proofs
    pending = {
        file: pending_mutants(language, found.files[file], file, explained) for file in files
    }
    progress = Progress(max(1, sum(map(len, pending.values()))))
    for file, mutants in pending.items():
        saved = time.monotonic()
        try:
            for mutant, result in language.run(mutants) if mutants else ():
                found.files[file].set(mutant, result)
                progress.step(result.status)
                if time.monotonic() - saved > 20:
                    results.save(found, path)
                    saved = time.monotonic()
                if time.monotonic() > end:
                    break
        finally:
            found.files[file].keep(language.mutants(file))
            results.save(found, path)
        if time.monotonic() > end:
            break
    return judge(found, files)


def pending_mutants(
    language: Language, entry: FileResults, file: str, proofs: dict[str, str]
) -> list[Mutant]:
    """The mutants to run: without a result, and survivors without a proof."""
    found = [(mutant, entry.get(mutant)) for mutant in language.mutants(file)]
    return [m for m, r in found if r is None or (r.status == "survived" and m.id not in proofs)]


def judge(found: Results, files: list[str]) -> bool:
    """Prints survivors and wrong proofs of the files; True if there are none."""
    proofs = equivalents.proofs(found.language)
    bad = {
        "survived": report.survivors(found, proofs),
        "is no survivor, so its proof is wrong or stale": report.wrong_proofs(found, proofs),
    }
    counts: collections.Counter[str] = collections.Counter()
    for what, names in bad.items():
        for name in names:
            if name.split(" | ", 1)[0] in files:
                counts[what] += 1
                print(f"{what}: {name}")
    return not counts


if __name__ == "__main__":
    raise SystemExit(main())
