"""Compares the speed of the CPU kernels with a recorded baseline, on request only.

    make perfcheck
    python tools/perfcheck.py BUILD/csrc/tests/perf_kernels [--update]

Measures that other load on the machine disturbs little:

* instructions of one small GEMM, counted by valgrind's callgrind. Exact and repeatable, but
  valgrind knows no AVX-512, so this covers the AVX2 kernel, and with it the text that all x86
  kernels share. Counts belong to one compiler; with another they are shown, not judged.
* the rate of each kernel over that of the AVX2 kernel, in one run, in thread time. They belong to
  one kind of processor; on another they are shown, not judged.
* the thread time of importing the package after jax, the least of a few processes; judged by
  IMPORT_MS, without a baseline.

Exit code 0: no measure is worse than the baseline by more than its tolerance; 1: one is, or nothing
could be judged; 2: usage. ``--update`` writes the baseline instead.
"""

import argparse
import json
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

BASELINE = pathlib.Path(__file__).with_name("perf_baseline.json")
COUNTED = "avx2"  # the fastest kernel that valgrind can run
BLOCKS = ("16", "32")  # products per block: ada and hopper
#: A count may grow, and a ratio shrink, by this much.
COUNT_TOLERANCE = 0.02
RATIO_TOLERANCE = 0.08
#: Importing the package may take this long, beyond jax's own import.
IMPORT_MS = 50


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("program", type=pathlib.Path, help="the built perf_kernels")
    parser.add_argument("--update", action="store_true", help="write the baseline")
    arguments = parser.parse_args()
    if not arguments.program.is_file():
        parser.error(f"{arguments.program} is no file: make perfcheck builds it.")
    measured = {
        "compiler": compiler_of(arguments.program),
        "processor": processor(),
        "instructions": count_instructions(arguments.program),
        "ratios": kernel_ratios(arguments.program),
    }
    if arguments.update:
        BASELINE.write_text(json.dumps(measured, indent=2) + "\n")
        print(f"wrote {BASELINE}")
        return 0
    slow_import = judge_import()
    return judge(measured, json.loads(BASELINE.read_text())) or slow_import


def judge(measured: dict, baseline: dict) -> int:
    """Prints every measure beside the baseline's; the exit code."""
    judged = worse = 0
    for kind, same, tolerance, sign in (
        ("instructions", "compiler", COUNT_TOLERANCE, 1),
        ("ratios", "processor", RATIO_TOLERANCE, -1),
    ):
        comparable = measured[same] == baseline[same]
        print(f"{kind} ({measured[same]})")
        if not comparable:
            print(f"  not judged: the baseline is of {baseline[same]}")
        for name, value in measured[kind].items():
            before = baseline[kind].get(name)
            if before is None:
                print(f"  {name:24} {value:>12} (not in the baseline)")
                continue
            change = value / before - 1
            bad = comparable and sign * change > tolerance
            judged += comparable
            worse += bad
            print(f"  {name:24} {value:>12} {change:+7.1%} {'WORSE' if bad else ''}".rstrip())
    if judged == 0:
        print("nothing could be judged here; --update records a baseline of this machine")
    return int(worse > 0 or judged == 0)


def judge_import() -> int:
    """Prints how long an import takes; the exit code."""
    program = """
import time, jax
start = time.thread_time()
import mmaemu_jax
print(time.thread_time() - start)
"""
    times = [float(run([sys.executable, "-c", program]).stdout) for _ in range(5)]
    least = min(times) * 1e3
    print(f"import  {least:.1f} ms {'WORSE' if least > IMPORT_MS else ''}".rstrip())
    return int(least > IMPORT_MS)


def count_instructions(program: pathlib.Path) -> dict[str, int]:
    """Instructions inside run_gemm; empty without valgrind."""
    if shutil.which("valgrind") is None:
        print("valgrind is not installed: no instruction counts")
        return {}
    return {f"{COUNTED} nfma={nfma}": count_run(program, nfma) for nfma in BLOCKS}


def count_run(program: pathlib.Path, nfma: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        options = [
            "--tool=callgrind",
            f"--callgrind-out-file={folder}/out",
            "--toggle-collect=mmaemu::cpu::run_gemm*",
        ]
        done = run(["valgrind", *options, str(program), "run", COUNTED, nfma])
    found = re.search(r"Collected\s*:\s*(\d+)", done.stderr)
    if found is None or int(found[1]) == 0:
        raise RuntimeError(f"perfcheck: callgrind counted nothing:\n{done.stderr}")
    return int(found[1])


def kernel_ratios(program: pathlib.Path) -> dict[str, float]:
    """The rate of each kernel over the AVX2 kernel's."""
    ratios = {}
    for nfma in BLOCKS:
        lines = run([str(program), "rates", nfma]).stdout.splitlines()
        rates = {name: float(rate) for name, rate in (line.split() for line in lines)}
        for name, rate in rates.items():
            if name != COUNTED and COUNTED in rates:
                ratios[f"{name} nfma={nfma}"] = round(rate / rates[COUNTED], 3)
    return ratios


def compiler_of(program: pathlib.Path) -> str:
    """The compiler that built the program, from its CMake cache."""
    folder = next(p for p in program.resolve().parents if (p / "CMakeCache.txt").is_file())
    cache = (folder / "CMakeCache.txt").read_text()
    found = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.+)$", cache, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"perfcheck: {folder}/CMakeCache.txt names no C++ compiler.")
    return run([found[1], "--version"]).stdout.splitlines()[0]


def processor() -> str:
    """Architecture, and where the system tells, family, model and stepping."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    fields = [
        re.search(rf"^{name}\s*:\s*(\d+)", text, re.MULTILINE)
        for name in ("cpu family", "model", "stepping")
    ]
    numbers = [field[1] for field in fields if field is not None]
    return f"{platform.machine()} {'/'.join(numbers)}".strip()


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=True, capture_output=True, text=True)


if __name__ == "__main__":
    sys.exit(main())
