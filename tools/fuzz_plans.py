"""Fuzzes the plan code (tests/plan_fuzzing.py), by coverage where atheris is installed.

    python tools/fuzz_plans.py [--seconds 60] [--target NAME] [--keep FOLDER]

Without atheris (`pip install atheris`) the inputs are pseudo-random, which it says. A finding ends
the run with the input's bytes; inputs that reached new code are kept in FOLDER/NAME.
"""

import argparse
import pathlib
import random
import subprocess
import sys
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

try:
    import atheris
except ImportError:
    atheris = None

NAMES = ("fuzz_files", "fuzz_plans", "fuzz_explain")
MAX_BYTES = 96


def load_target(name: str):
    """The target, its package instrumented if there is something to instrument it with."""
    if atheris is None:
        import plan_fuzzing

        return getattr(plan_fuzzing, name)
    with atheris.instrument_imports(include=["mmaemu_jax", "plan_fuzzing"]):
        import plan_fuzzing
    return getattr(plan_fuzzing, name)


def run_random(name: str, seconds: float) -> None:
    """Pseudo-random inputs for some seconds."""
    target, source = load_target(name), random.Random()
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        data = source.randbytes(source.randint(0, MAX_BYTES))
        try:
            target(data)
        except Exception as error:
            error.add_note(f"{name}(bytes.fromhex({data.hex()!r}))")
            raise
        count += 1
    print(f"{name}: {count} pseudo-random inputs, nothing found")


def run_guided(name: str, seconds: int, keep: pathlib.Path) -> None:
    """Inputs by coverage; atheris ends the process."""
    corpus = keep / name
    corpus.mkdir(parents=True, exist_ok=True)
    options = [f"-max_total_time={seconds}", f"-max_len={MAX_BYTES}", "-print_final_stats=1"]
    arguments = [sys.argv[0], *options, f"-artifact_prefix={keep}/{name}-", str(corpus)]
    atheris.Setup(arguments, load_target(name))
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--target", choices=NAMES, help="default: one after the other")
    parser.add_argument("--keep", type=pathlib.Path, default=ROOT / "build" / "fuzz-plans")
    given = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # the notices of unverified splits
    if given.target is None:  # atheris takes one target for a process
        options = ["--seconds", str(given.seconds), "--keep", str(given.keep)]
        command = [sys.executable, __file__, *options]
        return max(subprocess.call([*command, "--target", name]) for name in NAMES)
    if atheris is None:
        print("atheris is not installed: pseudo-random inputs, not guided by coverage")
        run_random(given.target, given.seconds)
    else:
        run_guided(given.target, given.seconds, given.keep)
    return 0


if __name__ == "__main__":
    sys.exit(main())
