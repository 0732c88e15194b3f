"""Runs the mutants of C++ files: switchable ones in one program per test, the others one by one.

A survivor has passed every test of its file, once more under the sanitizers, and compiles with all
static_asserts. Kernel texts are mutated in every target of x86, but those that are compiled one by
one, and what runs with checked bounds, in one (UNITS).
"""

import concurrent.futures
import dataclasses
import itertools
import os
import pathlib
import re
import resource
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator

from tools.mutation import cpp_sites
from tools.mutation.cpp_build import (
    ARGUMENTS,
    BOUNDS,
    HERE,
    SANITIZE,
    Builder,
    CompileError,
    Machine,
    test_file,
)
from tools.mutation.cpp_files import TESTS
from tools.mutation.cpp_schemata import schemata
from tools.mutation.mutant import ROOT, Mutant
from tools.mutation.results import Result

STUCK = 60  # seconds without a processor: threads that wait for each other take no time of one
STATIC_ASSERT = "static_assert"


@dataclasses.dataclass(frozen=True)
class Program:
    """A built test and how many seconds of a processor it may take."""

    test: str
    path: pathlib.Path
    seconds: float = 120
    machine: Machine = HERE

    def kills(self, index: int | None) -> Result | None:
        """What running mutant ``index`` (None: as built) comes to; None if every check passes."""
        microseconds = round(1e6 * self.seconds * self.machine.slower)
        environment = os.environ | {"MUTANT_MICROSECONDS": str(microseconds)}
        # Parts of a program are not instrumented, and so do not mark what a vector reserves.
        environment["ASAN_OPTIONS"] = "detect_container_overflow=0:detect_leaks=0"
        if index is not None:
            environment["MUTANT"] = str(index)
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        command = [*self.machine.runner, str(self.path), *ARGUMENTS.get(self.test, ())]
        with subprocess.Popen(command, cwd=ROOT, env=environment, **streams) as process:
            code = _wait(process)
        if code == -signal.SIGPROF:
            return Result("timeout")
        return None if code == 0 else Result("killed", test_file(self.test))


def _wait(process: subprocess.Popen) -> int:
    """The exit code of a process, which is ended when it is stuck, however busy the machine is."""
    before = -1
    while True:
        try:
            return process.wait(STUCK)
        except subprocess.TimeoutExpired:
            taken = _ticks(process.pid)
            if taken == before:
                process.kill()
                return -signal.SIGPROF
            before = taken


def _ticks(pid: int) -> int:
    """How long a process has had a processor, in ticks of the kernel."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


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
        sanitizers = BOUNDS if UNITS.get(self.file) in self.builder.machine.library else SANITIZE
        for sanitize, test in itertools.product(([], sanitizers), self.tests):
            survivors = []
            program = self.program(test, sanitize) if switched else None
            for item, result in self._each(lambda m, p=program: p.kills(m[0]), switched):
                if result is None:
                    survivors.append(item)
                else:
                    yield item[1], result
            switched = survivors
        # What the compiler evaluates was never the mutant: a static_assert may still kill it.
        yield from self._each(self.compile, [mutant for _, mutant in switched])
        yield from self._each(self.build_and_run, fixed)

    def program(self, test: str, sanitize: list[str]) -> Program:
        """A test with all mutants, allowed three times what it takes with none.

        ValueError where it fails with none.
        """
        replaced = {self.file: schemata(self.file, self.source, self.sites)}
        only = UNITS.get(self.file, "") if sanitize else ""
        path = self.builder.program(test, replaced, only, sanitize)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        whole = Program(test, path, machine=self.builder.machine)
        if (result := whole.kills(None)) is not None:
            raise ValueError(f"{self.file}: {test_file(test)} fails without a mutant: {result}.")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return dataclasses.replace(whole, seconds=0.2 + 3 * taken / whole.machine.slower)

    def compile(self, mutant: Mutant) -> Result:
        """Whether the mutant compiles, static_asserts included."""
        units = [UNITS.get(self.file, self.file)]
        if self.file.startswith("csrc/numerics/"):
            units += map(test_file, self.tests)
        try:
            for unit in units:
                self.builder.syntax(unit, self._replaced(mutant))
        except CompileError as error:
            return _refused(error)
        return Result("survived")

    def build_and_run(self, mutant: Mutant) -> Result:
        """Compiles the mutant alone and runs the tests."""
        only = UNITS.get(self.file, "")
        if not only and (result := self.compile(mutant)).status != "survived":
            return result
        for test in self.tests:
            try:
                path = self.builder.program(test, self._replaced(mutant), only)
            except CompileError as error:
                return _refused(error)
            result = Program(test, path, machine=self.builder.machine).kills(None)
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


def _refused(error: CompileError) -> Result:
    if re.search("static assertion failed|non-constant condition for static assert", str(error)):
        return Result("killed", STATIC_ASSERT)
    return Result("uncompilable")


_AVX2 = "csrc/cpu/target_avx2.cc"
_CUDA = "csrc/tests/cuda_sources.cc"
_NEON = "csrc/cpu/target_neon.cc"
_VBMI = "csrc/cpu/target_avx512_vbmi.cc"
#: Kernel texts are no units of their own: a unit that includes them, and runs all of them.
UNITS = {
    "csrc/cpu/chain_kernel-inl.h": _VBMI,
    "csrc/cpu/epilogue-inl.h": _VBMI,
    "csrc/cpu/generic_ops-inl.h": _AVX2,
    "csrc/cpu/lanes_avx2.h": _AVX2,
    "csrc/cpu/lanes_avx512.h": "csrc/cpu/target_avx512.cc",
    "csrc/cpu/lanes_avx512_vbmi.h": _VBMI,
    "csrc/cpu/lanes_neon.h": _NEON,
    "csrc/cpu/pack-inl.h": _VBMI,
    "csrc/cpu/packed_codes.h": _VBMI,
    "csrc/cpu/part_sse2.h": _AVX2,
    "csrc/cpu/tally-inl.h": _VBMI,
    "csrc/cpu/tile_kernel-inl.h": _VBMI,
    "csrc/cuda/byte_lanes.h": _CUDA,
    "csrc/cuda/fragment.h": _CUDA,
    "csrc/cuda/ieee_kernel.cu": _CUDA,
    "csrc/cuda/ieee_step.h": _CUDA,
    "csrc/cuda/kernels.h": _CUDA,
    "csrc/cuda/mma_step.h": _CUDA,
    "csrc/cuda/mma_sync_kernel.cu": _CUDA,
    "csrc/cuda/output_code.h": _CUDA,
    "csrc/cuda/portable_kernel.cu": _CUDA,
    "csrc/cuda/portable_kernel.h": _CUDA,
    "csrc/cuda/tile_gemm.h": _CUDA,
    "csrc/cuda/wgmma_kernel.cu": _CUDA,
}
