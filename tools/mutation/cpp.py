"""The mutants of the C++ sources and the tests of csrc/tests that can kill them."""

import os
import platform
import subprocess
from collections.abc import Iterator

from tools.mutation import cpp_sites, cpp_source
from tools.mutation.cpp_build import CXX, HERE, NEON, Builder
from tools.mutation.cpp_files import ELSEWHERE, TESTS
from tools.mutation.cpp_run import FileRun
from tools.mutation.mutant import ROOT, Mutant
from tools.mutation.results import Result

FOLDER = ROOT / "build" / "mutation"


def files() -> list[str]:
    """The files to be covered, most wanted first."""
    return list(TESTS)


def mutants(file: str) -> list[Mutant]:
    """All mutants of a file; none where no test here can run it."""
    return cpp_sites.find_mutants(file, (ROOT / file).read_text()) if TESTS[file] else []


def left_out(file: str) -> int:
    """How many lines of code of a file have no mutants, as they are not compiled here."""
    return cpp_source.left_out((ROOT / file).read_text())


def versions() -> dict[str, str]:
    """What results depend on besides the sources."""
    version = subprocess.run([CXX, "-dumpfullversion"], capture_output=True, text=True, check=True)
    return {CXX: version.stdout.strip(), "machine": platform.machine()}


def run(chosen: list[Mutant]) -> Iterator[tuple[Mutant, Result]]:
    """Tests mutants of one file."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    jobs = int(os.environ.get("JOBS", "2"))
    file = chosen[0].file
    builder = Builder(FOLDER, jobs=jobs, machine=NEON if file in ELSEWHERE else HERE)
    yield from FileRun(file, builder, jobs).run(chosen)
