"""Builds the C++ tests with some files replaced; what these do not reach is built once.

The compiler's own list of what a source includes decides what has to be compiled again.
"""

import concurrent.futures
import dataclasses
import hashlib
import os
import pathlib
import re
import subprocess
import threading

import jax

from tools.mutation.mutant import ROOT

RUNTIME = pathlib.Path(__file__).with_name("schemata.h")
CXX = os.environ.get("CXX", "g++")
FLAGS = ["-std=c++20", "-O1", "-DNDEBUG", "-w", "-fwrapv", "-ffp-contract=off", "-fno-math-errno"]
FLAGS += ["-frounding-math", "-pthread", "-Wno-narrowing"]
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"]
AVX512 += ["-mprefer-vector-width=512"]
VBMI = [*AVX512, "-mavx512vbmi", "-mavx512bitalg", "-mavx512vnni", "-mgfni"]

#: Every kind of case, few of each; schemata.h limits the process.
TEST_FLAGS = ["-DMMAEMU_FEWER_CASES", "-include", str(RUNTIME)]

#: For what is read or written beyond an end, which may change no result.
SANITIZE = ["-fsanitize=address,undefined,bounds-strict", "-fno-sanitize-recover=all", "-fno-wrapv"]
#: The same for kernel texts, which take the others minutes to compile.
BOUNDS = ["-fsanitize=bounds", "-fno-sanitize-recover=all"]

#: The library's sources on x86-64, with the flags of CMakeLists.txt.
LIBRARY = {
    "csrc/cpu/dispatch.cc": ["-DMMAEMU_X86_TARGETS"],
    "csrc/cpu/gemm.cc": [],
    "csrc/cpu/parallel.cc": [],
    "csrc/cpu/portable.cc": ["-O3"],  # what the kernels are compared with takes the most time
    "csrc/cpu/specials.cc": [],
    "csrc/cpu/target_avx2.cc": AVX2,
    "csrc/cpu/target_avx512.cc": AVX512,
    "csrc/cpu/target_avx512_vbmi.cc": VBMI,
}


@dataclasses.dataclass(frozen=True)
class Machine:
    """What programs are built for, what runs them here, and how many times longer that takes."""

    compiler: str
    library: dict[str, list[str]]
    runner: tuple[str, ...] = ()
    slower: int = 1


HERE = Machine(CXX, LIBRARY)
_NEON = {f"csrc/cpu/{name}.cc": [] for name in ("gemm", "parallel", "specials", "target_neon")}
_NEON |= {"csrc/cpu/portable.cc": ["-O3"], "csrc/cpu/dispatch.cc": ["-DMMAEMU_NEON_TARGET"]}
#: As csrc/aarch64-linux-gnu.cmake builds and runs it.
NEON = Machine("aarch64-linux-gnu-g++", _NEON, ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"), 10)

#: Tests of headers alone.
WITHOUT_LIBRARY = {"formats", "rounding", "block_step", "plan"}
#: Tests of more than one source, with the flags of csrc/tests/CMakeLists.txt.
_CUDA = ["-DMMAEMU_CUDA_ON_CPU"]
_XLA = ["-isystem", jax.ffi.include_dir()]
_HANDLERS = {f"csrc/ffi/{name}.cc": _XLA for name in ("cpu_handlers", "cpu_call", "gemm_call")}
TEST_UNITS: dict[str, dict[str, list[str]]] = {
    "cuda_kernels": {
        "csrc/tests/test_cuda_kernels.cc": _CUDA,
        "csrc/tests/cuda_sources.cc": _CUDA,
        "csrc/cuda/gemm.cc": _CUDA,
        "csrc/cuda/kernels.cc": _CUDA,
    },
    "fuzz_replay": {
        "csrc/fuzz/test_fuzz_replay.cc": [],
        "csrc/fuzz/handler.cc": _XLA,
        "csrc/fuzz/plan.cc": [],
        "csrc/fuzz/arithmetic.cc": [],
    }
    | _HANDLERS,
    "handler_refusals": {"csrc/tests/test_handler_refusals.cc": _XLA} | _HANDLERS,
}
#: What a test is called with, in the root.
ARGUMENTS = {"fuzz_replay": ("csrc/fuzz/corpus", "3000")}

# The first failure of a test ends it: whether a mutant is killed is all that is asked.
CHECK = "csrc/tests/check.h"
_REPORTED = "if (++tally.failures > kMaxReports) return;"
_ENDS = 'std::printf("%s:%d\\n", file, line); std::fflush(stdout); std::_Exit(1);'


class CompileError(Exception):
    """A source that does not compile; the message is the compiler's."""


def check_header(source: str) -> str:
    """check.h for mutants."""
    if source.count(_REPORTED) != 1:
        raise ValueError(f"check_header: {CHECK} no longer has one {_REPORTED!r}.")
    return source.replace(_REPORTED, _ENDS)


def test_units(test: str) -> dict[str, list[str]]:
    """The sources that are a test's own, with their flags."""
    units = TEST_UNITS.get(test, {f"csrc/tests/test_{test}.cc": []})
    return {unit: [*flags, *TEST_FLAGS] for unit, flags in units.items()}


def test_file(test: str) -> str:
    """The source of a test that is named after it."""
    return next(iter(test_units(test)))


def flags_of(unit: str, machine: Machine) -> list[str]:
    """The flags of a unit by itself."""
    for units in (machine.library, *TEST_UNITS.values()):
        if unit in units:
            return units[unit]
    return []


class Builder:
    """Compiles and links below ``folder``.

    Attributes:
        root: the checkout.
        folder: for objects and programs.
        jobs: compilers at a time.
        machine: what is compiled for.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        root: pathlib.Path = ROOT,
        jobs: int = 2,
        machine: Machine = HERE,
    ):
        self.machine = machine
        self._compiler = machine.compiler
        self.root = root
        self.folder = folder
        self.jobs = jobs
        self.includes: dict[str, frozenset[str]] = {}
        self.locks: dict[str, threading.Lock] = {}
        self.lock = threading.Lock()

    def program(
        self, test: str, replaced: dict[str, str], only: str = "", sanitize: list[str] | None = None
    ) -> pathlib.Path:
        """The test with files replaced, by path from the root: in all units or ``only`` in one.

        The test's own units and what the files reach are compiled with ``sanitize``. CompileError
        if it does not build.
        """
        own = test_units(test)
        units = own if test in WITHOUT_LIBRARY else own | self.machine.library
        for unit, flags in units.items():
            if unit in own or (self.reaches(replaced, unit, flags) and only in ("", unit)):
                units[unit] = [*flags, *(sanitize or [])]
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            made = [
                pool.submit(self.object, unit, flags, replaced if only in ("", unit) else {})
                for unit, flags in units.items()
            ]
            objects = [future.result() for future in made]
        path = self.folder / f"test_{test}-{_digest(*map(str, objects))}"
        with self._only_once(str(path)):
            if not path.exists():
                self._run(
                    [
                        self._compiler,
                        "-pthread",
                        *(sanitize or [])[:1],
                        *map(str, objects),
                        "-o",
                        str(path),
                    ]
                )
        return path

    def reaches(self, replaced: dict[str, str], unit: str, flags: list[str]) -> bool:
        """Whether a unit depends on one of the files."""
        return not self.dependencies(unit, flags).isdisjoint(replaced)

    def syntax(self, unit: str, replaced: dict[str, str]) -> None:
        """Only checks that a unit compiles; CompileError where it does not."""
        overlay = self._overlay(replaced)
        flags = flags_of(unit, self.machine)
        source = overlay / unit if unit in replaced else self.root / unit
        command = [
            self._compiler,
            *FLAGS,
            *flags,
            "-x",
            "c++",
            "-fsyntax-only",
            *self._paths(overlay),
        ]
        self._run([*command, str(source)])

    def object(self, unit: str, flags: list[str], replaced: dict[str, str]) -> pathlib.Path:
        """The object file of one unit."""
        used = {f: text for f, text in replaced.items() if f in self.dependencies(unit, flags)}
        state = [RUNTIME.read_text()] + [f"{f}\0{text}" for f, text in sorted(used.items())]
        state += [(self.root / f).read_text() for f in sorted(self.dependencies(unit, flags))]
        path = (
            self.folder
            / f"{pathlib.Path(unit).stem}-{_digest(self._compiler, *FLAGS, *flags, *state)}.o"
        )
        with self._only_once(str(path)):
            if not path.exists():
                self._compile(unit, flags, used, path)
        return path

    def dependencies(self, unit: str, flags: list[str]) -> frozenset[str]:
        """The files of the checkout that a unit includes, itself among them."""
        with self._only_once(f"dependencies of {unit}"):
            if unit not in self.includes:
                command = [
                    self._compiler,
                    *FLAGS,
                    *flags,
                    "-I",
                    str(self.root / "csrc"),
                    "-MM",
                ]
                rule = self._run([*command, str(self.root / unit)])
                found = re.sub(r"\\\n", " ", rule).split(":", 1)[1].split()
                root = self.root.resolve()
                paths = [pathlib.Path(f).resolve() for f in found]
                own = [path.relative_to(root) for path in paths if path.is_relative_to(root)]
                self.includes[unit] = frozenset(path.as_posix() for path in own)
        return self.includes[unit]

    def _compile(self, unit: str, flags: list[str], used: dict[str, str], path: pathlib.Path):
        overlay = self._overlay(used)
        source = overlay / unit if unit in used else self.root / unit
        new = path.with_suffix(".new")
        command = [self._compiler, *FLAGS, *flags, *self._paths(overlay), "-c", str(source)]
        self._run([*command, "-o", str(new)])
        new.replace(path)

    def _paths(self, overlay: pathlib.Path) -> list[str]:
        return ["-I", str(overlay / "csrc"), "-I", str(self.root / "csrc")]

    def _overlay(self, replaced: dict[str, str]) -> pathlib.Path:
        """A folder with the replaced files, which the compiler looks into first."""
        replaced = {CHECK: check_header((self.root / CHECK).read_text()), **replaced}
        folder = self.folder / f"overlay-{_digest(*(p + t for p, t in sorted(replaced.items())))}"
        for path, text in replaced.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        return folder

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CompileError(done.stderr)
        return done.stdout

    def _only_once(self, name: str) -> threading.Lock:
        with self.lock:
            return self.locks.setdefault(name, threading.Lock())


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]
