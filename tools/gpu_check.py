"""Everything that wants a GPU, in under eight minutes: one table, and one JSON file.

    python tools/gpu_check.py [--out FOLDER] [--minutes 7.5] [--only STEP ...] [--dry-run]

Run it on a GPU machine in an installation with the CUDA kernels (docs/cuda.md). Steps in order of
worth; each has its share of the time, is skipped when the time is over, and says so. --dry-run
executes the same code without a GPU: the CPU's kernels stand for the GPU's, a stand-in library for
cuBLASLt (its GEMMs must differ), small sizes for large ones.
"""

import argparse
import dataclasses
import json
import pathlib
import sys
import time
import traceback
import warnings
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests"), str(ROOT)]


@dataclasses.dataclass
class Run:
    """What the steps share.

    Attributes:
        out: the folder for everything that is written.
        dry: no GPU: stand-ins for it.
        end: when the time is over (time.monotonic).
    """

    out: pathlib.Path
    dry: bool
    end: float

    def left(self) -> float:
        """Seconds until the time is over."""
        return self.end - time.monotonic()


@dataclasses.dataclass
class Outcome:
    """One line of the table."""

    step: str
    ok: bool | None
    text: str
    seconds: float = 0.0
    details: object = None

    def __str__(self) -> str:
        mark = {True: "ok", False: "FAILED", None: "skipped"}[self.ok]
        return f"{self.step:<22} {mark:<8} {self.seconds:6.1f} s  {self.text}"


def steps() -> dict[str, tuple[float, Callable[[Run, float], Outcome]]]:
    """Of each step, its share of the time in seconds and what it does."""
    from gpu import bits, library, native_jax, recordings, speed

    return {
        "extension": (5, bits.extension),
        "self-test": (60, bits.self_test),
        "agreement": (90, bits.agreement),
        "recordings": (60, recordings.replay_all),
        "cuBLASLt": (60, library.compare),
        "torch": (40, library.compare_torch),
        "speed": (60, speed.measure),
        "native JAX": (90, native_jax.compare),
        "record": (40, library.record),
    }


def run_step(name: str, share: float, function, run: Run) -> Outcome:
    """One step; an unexpected error is its outcome, and the next step runs all the same."""
    budget = min(share, run.left())
    if budget < 2:
        return Outcome(name, None, "the time is over")
    start = time.monotonic()
    try:
        outcome = function(run, budget)
    except Exception as error:
        outcome = Outcome(name, False, f"{type(error).__name__}: {error}"[:300])
        outcome.details = traceback.format_exc()
    outcome.step, outcome.seconds = name, time.monotonic() - start
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "gpu")
    parser.add_argument("--minutes", type=float, default=7.5)
    parser.add_argument("--only", nargs="+", metavar="STEP")
    parser.add_argument("--dry-run", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    # Experimental kernels and plans that were never recorded are what is asked for here.
    warnings.filterwarnings("ignore", module=r"mmaemu_jax|__main__|gpu\.|replay|implementations")
    run = Run(args.out, args.dry_run, time.monotonic() + 60 * args.minutes)
    outcomes = []
    for name, (share, function) in steps().items():
        if args.only and name not in args.only:
            continue
        outcomes.append(run_step(name, share, function, run))
        print(outcomes[-1], flush=True)
        # Written after every step, so that a machine that goes away leaves what it did.
        report = [dataclasses.asdict(outcome) for outcome in outcomes]
        (args.out / "gpu_check.json").write_text(json.dumps(report, indent=1, default=str))
    print(f"details: {args.out / 'gpu_check.json'}")
    return 0 if all(outcome.ok is not False for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
