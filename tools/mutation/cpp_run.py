"""Runs the mutants of C++ files: switchable ones in one program per test, the others one by one."""

import concurrent.futures
import dataclasses
import os
import pathlib
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator

from tools.mutation import cpp_sites
from tools.mutation.cpp_build import Builder, CompileError
from tools.mutation.cpp_files import TESTS
from tools.mutation.cpp_schemata import schemata
from tools.mutation.mutant import Mutant
from tools.mutation.results import Result

MEMORY_KB = 6_000_000  # of address space: a mutant may ask for all there is
STATIC_ASSERT = "static_assert"


@dataclasses.dataclass(frozen=True)
class Program:
    """A built test and how long it may run."""

    test: str
    path: pathlib.Path
    seconds: float

    def kills(self, index: int | None) -> Result | None:
        """What running mutant ``index`` (None: as built) comes to; None if every check passes."""
        environment = os.environ | ({} if index is None else {"MUTANT": str(index)})
        command = ["bash", "-c", f"ulimit -c 0 -v {MEMORY_KB}; exec {self.path}"]
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, timeout=self.seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return Result("timeout")
        return None if done.returncode == 0 else Result("killed", test_file(self.test))


def test_file(test: str) -> str:
    return f"csrc/tests/test_{test}.cc"


@dataclasses.dataclass
class FileRun:
    """The mutants of one file.

    Attributes:
        file: path from the root.
        builder: of the programs.
        jobs: processes at a time.
        tests: names of tests, the quickest first; those of cpp_files.py if none are given.
    """

    file: str
    builder: Builder
    jobs: int = 2
    tests: tuple[str, ...] = ()

    def __post_init__(self):
        self.tests = self.tests or TESTS[self.file]
        self.source = (self.builder.root / self.file).read_text()
        self.sites = cpp_sites.find_sites(self.file, self.source)

    def run(self, wanted: Iterable[Mutant]) -> Iterator[tuple[Mutant, Result]]:
        """Runs mutants of this file; a survivor has passed every test."""
        ids = {mutant.id for mutant in wanted}
        numbered = [(i, site) for i, site in enumerate(self.sites) if site.mutant.id in ids]
        switched = [(i, site.mutant) for i, site in numbered if site.switchable]
        fixed = [site.mutant for _, site in numbered if not site.switchable]
        passed = []
        if switched:
            programs = self.programs()
            for (_, mutant), result in self._each(lambda m: _first(programs, m[0]), switched):
                if result is None:
                    passed.append(mutant)
                else:
                    yield mutant, result
        # What the compiler evaluates was never the mutant: a static_assert may still kill it.
        yield from self._each(self.compile, passed)
        yield from self._each(self.build_and_run, fixed)

    def programs(self) -> list[Program]:
        """Every test with all mutants, timed with none; ValueError where one fails."""
        replaced = {self.file: schemata(self.file, self.source, self.sites)}
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            paths = list(pool.map(lambda test: self.builder.program(test, replaced), self.tests))
        return [self._timed(test, path) for test, path in zip(self.tests, paths, strict=True)]

    def _timed(self, test: str, path: pathlib.Path) -> Program:
        start = time.monotonic()
        if (result := Program(test, path, 600).kills(None)) is not None:
            raise ValueError(f"{self.file}: {test_file(test)} fails without a mutant: {result}.")
        return Program(test, path, 3 + 5 * (time.monotonic() - start))

    def compile(self, mutant: Mutant) -> Result:
        """Whether the mutant compiles, static_asserts included."""
        try:
            self.builder.syntax(UNITS.get(self.file, self.file), self._replaced(mutant))
        except CompileError as error:
            return _refused(error)
        return Result("survived")

    def build_and_run(self, mutant: Mutant) -> Result:
        """Compiles the mutant alone and runs the tests."""
        if (result := self.compile(mutant)).status != "survived":
            return result
        for test in self.tests:
            try:
                path = self.builder.program(test, self._replaced(mutant))
            except CompileError as error:
                return _refused(error)
            result = Program(test, path, 60).kills(None)
            path.unlink()
            if result is not None:
                return result
        return Result("survived")

    def _replaced(self, mutant: Mutant) -> dict[str, str]:
        return {self.file: mutant.apply(self.source)}

    def _each(self, function: Callable, items: list) -> Iterator[tuple]:
        """(item, result) as they come."""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            futures = {pool.submit(function, item): item for item in items}
            try:
                for future in concurrent.futures.as_completed(futures):
                    yield futures[future], future.result()
            finally:
                pool.shutdown(cancel_futures=True)


def _first(programs: list[Program], index: int) -> Result | None:
    """What the first test that notices the mutant makes of it."""
    results = (program.kills(index) for program in programs)
    return next((result for result in results if result is not None), None)


def _refused(error: CompileError) -> Result:
    if "static assertion failed" in str(error):
        return Result("killed", STATIC_ASSERT)
    return Result("uncompilable")


_VBMI = "csrc/cpu/target_avx512_vbmi.cc"
#: Kernel texts are no units of their own.
UNITS = {
    f"csrc/cpu/{name}": _VBMI
    for name in (
        "chain_kernel-inl.h",
        "epilogue-inl.h",
        "generic_ops-inl.h",
        "lanes_avx512.h",
        "lanes_avx512_vbmi.h",
        "pack-inl.h",
        "part_sse2.h",
        "tally-inl.h",
        "tile_kernel-inl.h",
    )
} | {"csrc/cpu/lanes_avx2.h": "csrc/cpu/target_avx2.cc"}
