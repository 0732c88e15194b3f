"""tools/mutation over C++: the sites of a source, and two ways of running that have to agree."""

import pathlib
import re
import shutil
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # tools is no part of the installation

from tools.mutation import cpp, cpp_run  # noqa: E402
from tools.mutation.cpp_build import TEST_UNITS, Builder  # noqa: E402
from tools.mutation.cpp_sites import find_sites, other_constants  # noqa: E402
from tools.mutation.cpp_source import compiled_part, left_out  # noqa: E402

SOURCE = """
#include <x>
template <int N = 3> // 1 + 1
MMAEMU_HD constexpr bool f(int x, const int (&y)[4]) {
  constexpr int kOne = 1;
  static_assert(kOne == 1);
  if constexpr (N > 3) return g<2>(x);
  x += -y[0x1F];
  for (;;) ++x;
  if (x < 1.0f && !x) return true;
  return x ? x : Lanes::template shift_left<7>(x);
}
"""
SWITCHED = {
    "+= -> -=", "- -> nothing", "0x1F -> 0x20", "0x1F -> 0x1E", "0x1F -> 0x0", "++ -> --",
    "< -> <=", "< -> >=", "1.0f -> 2.0f", "1.0f -> 0.0f", "&& -> ||", "! -> nothing",
    "true -> false", "x -> !(x)", "shift_left -> shift_right", "2 -> 3", "2 -> 1", "2 -> 0",
}  # fmt: skip
COMPILED = {
    "1 -> 2", "1 -> 0", "> -> >=", "> -> <=", "3 -> 4", "3 -> 2",
    "3 -> 0", "7 -> 8", "7 -> 6", "7 -> 0",
}  # fmt: skip


def test_sites_of_a_cpp_source():
    sites = find_sites("f.cc", SOURCE)
    assert {site.mutant.edit for site in sites if site.switchable} == SWITCHED
    assert {site.mutant.edit for site in sites if not site.switchable} == COMPILED
    assert all(site.mutant.apply(SOURCE) != SOURCE for site in sites)


def test_constants():
    assert other_constants("0") == ["1", "-1"]
    assert other_constants("0x7Fu") == ["0x80u", "0x7Eu", "0x0u"]
    assert other_constants("100'000") == ["100001", "99999", "0"]
    assert other_constants("-1000") == ["-999", "-1001", "0"]
    assert other_constants("-0.0f") == ["1.0f", "-1.0f"]
    with pytest.raises(ValueError, match="not a number"):
        other_constants("kOne")


def test_branches_that_are_not_compiled_have_no_sites():
    source = "#if defined(__CUDA_ARCH__)\nint a = 1;\n#elif defined(__x86_64__)\nint b;\n#else\n"
    source += "int c;\n#endif\n#define TWO \\\n  2\nint d;\n"
    text = compiled_part(source)
    assert len(text) == len(source)
    assert text.split() == ["int", "b;", "int", "d;"]
    with pytest.raises(ValueError, match="not known here"):
        compiled_part("#if defined(UNKNOWN)\n#endif\n")


DEVICE = """
#if defined(MMAEMU_CUDA_ON_CPU)
#include "tests/shim.h"
#else
#if defined(UNKNOWN)
__device__ int device() { return 1 + 1; }  // counted, and no #if of it
#endif
// not counted
#endif
__global__ void __launch_bounds__(64 * 2, 1) kernel(const __grid_constant__ int x) {
  __syncthreads();
  store(__fmaf_rz(x, x, -x));
}
"""


def test_what_only_a_device_compiles_is_counted_and_not_mutated():
    found = {site.mutant.edit for site in find_sites("f.cu", DEVICE)}
    assert found == {"- -> nothing", "__fmaf_rz -> __fmaf_rn", "__syncthreads -> __syncwarp"}
    assert left_out(DEVICE) == 2
    assert left_out(SOURCE) == 0


def test_units_of_a_test_are_those_of_cmake():
    """The executables of csrc/tests by themselves; the handlers and fuzz targets as libraries."""
    tests = (ROOT / "csrc/tests/CMakeLists.txt").read_text()
    handlers = re.search(r"mmaemu_handlers STATIC\s+(.*?)\)", (ROOT / "CMakeLists.txt").read_text())
    fuzz = re.search(r"FUZZ_SOURCES (.*?)\)", (ROOT / "csrc/fuzz/CMakeLists.txt").read_text())
    library = set(handlers[1].split())
    targets = {f"csrc/fuzz/{name}" for name in fuzz[1].split()} | {"csrc/fuzz/test_fuzz_replay.cc"}
    units = {test: list(paths) for test, paths in TEST_UNITS.items()}
    assert set(units.pop("fuzz_replay")) == targets | library
    assert set(units.pop("handler_refusals")) == {"csrc/tests/test_handler_refusals.cc"} | library
    for test in units:
        names = [
            unit.removeprefix("csrc/tests/").replace("csrc/", "../") for unit in TEST_UNITS[test]
        ]
        assert f"add_executable(test_{test}\n  {' '.join(names)})" in tests
        for flag in {f.removeprefix("-D") for flags in TEST_UNITS[test].values() for f in flags}:
            assert f"target_compile_definitions(test_{test} PRIVATE {flag})" in tests


def test_what_cannot_be_parsed_is_refused():
    with pytest.raises(ValueError, match=r"f\.cc:1: tree-sitter-cpp does not understand"):
        find_sites("f.cc", "int f( { }}}}\n")


HEADER = """
inline int clamp(int x, int low) {
  const bool below = x < low || x == -7;
  int steps = 0;
  for (int i = 0; i < 3; ++i) steps += i;
  return below ? low : x * steps;
}
inline constexpr int kLow = 4;
static_assert(kLow < 6);
"""
FILE = "csrc/numerics/clamp.h"
STRONG = """
  for (int x = -9; x < 9; ++x) {
    MMAEMU_CHECK(clamp(x, kLow) == (x > 3 ? 3 * x : 4), x);
    MMAEMU_CHECK(clamp(x, -9) == (x == -7 ? -9 : 3 * x), x);
  }
"""
WEAK = "  MMAEMU_CHECK(clamp(9, 4) == 27);\n"


def made_up_checkout(folder: pathlib.Path, checks: str) -> Builder:
    """A checkout with one header and one test of it."""
    tests = folder / "csrc" / "tests"
    tests.mkdir(parents=True)
    (folder / FILE).parent.mkdir()
    (folder / FILE).write_text(HEADER)
    shutil.copy(ROOT / "csrc/tests/check.h", tests)
    (tests / "test_formats.cc").write_text(
        '#include "numerics/clamp.h"\n#include "tests/check.h"\n'
        f"int main() {{\n{checks}  return mmaemu::testing::finish();\n}}\n"
    )
    return Builder(folder / "build", folder)


def run(folder: pathlib.Path, checks: str) -> tuple[cpp_run.FileRun, dict]:
    file_run = cpp_run.FileRun(FILE, made_up_checkout(folder, checks), tests=("formats",))
    mutants = [site.mutant for site in file_run.sites]
    return file_run, {m: result.status for m, result in file_run.run(mutants)}


def test_a_strong_test_leaves_what_is_equivalent(tmp_path):
    file_run, found = run(tmp_path, STRONG)
    assert len(found) == len(file_run.sites)
    survivors = {mutant.edit for mutant, status in found.items() if status == "survived"}
    assert survivors == {"0 -> 1"}  # of i: the sum is the same
    switched = [site.mutant for site in file_run.sites if site.switchable]
    for mutant in switched[::5]:
        alone = file_run.build_and_run(mutant).status
        assert alone == found[mutant] or {alone, found[mutant]} <= {"killed", "timeout"}


def test_a_weak_test_lets_mutants_survive(tmp_path):
    _, found = run(tmp_path, WEAK)
    survivors = {mutant.edit for mutant, status in found.items() if status == "survived"}
    assert {"|| -> &&", "== -> !=", "7 -> 8"} & survivors


def test_a_test_that_fails_without_a_mutant_is_refused(tmp_path):
    with pytest.raises(ValueError, match="fails without a mutant"):
        run(tmp_path, "  MMAEMU_CHECK(clamp(9, 4) == 28);\n")


def test_every_file_is_covered_or_said_not_to_be():
    sources = {
        path.relative_to(ROOT).as_posix()
        for folder in ("numerics", "cpu", "cuda")
        for path in (ROOT / "csrc" / folder).iterdir()
        if path.suffix != ".txt"
    }
    without = {
        file for file in sources - set(cpp.files()) if find_sites(file, (ROOT / file).read_text())
    }
    assert without == set()
