"""Everything that wants a GPU, in under eight minutes: one table, and one JSON file.

    python tools/gpu_check.py [--out FOLDER] [--minutes 7.5] [--only SECTION ...] [--dry-run]

It builds the extensions for the GPU that is there and asks its sections in order of worth
(docs/cuda.md). Each is a process of its own: whatever happens to one, a crash, a hang, a GPU in a
bad state, the others run. Each has its share of the time and is ended when that is over; what it
had found by then is kept. The JSON is written as results come.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
#: After its share of the time a section has so many seconds more to come to its end by itself.
GRACE = 8.0
#: Less than this is no time for a section.
LEAST = 3.0


@dataclasses.dataclass(frozen=True)
class Section:
    """One question.

    Attributes:
        function: "module:function".
        seconds: its share of the time.
        environment: variables that must be set before its process imports anything.
    """

    function: str
    seconds: float
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


#: XLA must record the calls of a program into one CUDA graph, however few they are.
GRAPHS = "--xla_gpu_enable_command_buffer=FUSION,CUSTOM_CALL --xla_gpu_graph_min_graph_size=1"
#: torch's workspace is that of version 2.7.1, whatever version it is.
_TORCH = {"TORCH_CUBLASLT_UNIFIED_WORKSPACE": "0", "CUBLASLT_WORKSPACE_SIZE": "1024"}
SECTIONS = {
    "build": Section("gpu.build:build", 200),
    "extension": Section("gpu.bits:extension", 30),
    "self-test": Section("gpu.bits:self_test", 90),
    "agreement": Section("gpu.bits:agreement", 60),
    "command buffers": Section("gpu.bits:command_buffers", 30, {"XLA_FLAGS": GRAPHS}),
    "recordings": Section("gpu.recorded:replay_all", 60),
    "cuBLASLt": Section("gpu.library:compare", 60),
    "torch": Section("gpu.torch_gemm:compare", 40, _TORCH),
    "native JAX": Section("gpu.native_jax:compare", 70),
    "speed": Section("gpu.speed:measure", 40),
    "identify": Section("gpu.native_jax:identify", 60),
    "record": Section("gpu.record:record", 30),
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], epilog=f"Sections: {', '.join(SECTIONS)}."
    )
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "gpu",
                        help="for gpu_check.json, gpu_check.txt and gpu_check.zip")  # fmt: skip
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "gpu" / "work",
                        help="for the build and the files of the sections")  # fmt: skip
    parser.add_argument("--minutes", type=float, default=7.5)
    parser.add_argument("--only", nargs="+", metavar="SECTION", choices=SECTIONS)
    parser.add_argument("--skip", nargs="+", metavar="SECTION", choices=SECTIONS, default=[])
    parser.add_argument("--installed", action="store_true",
                        help="take the installed mmaemu_jax instead of building one")  # fmt: skip
    parser.add_argument("--architecture", default="", metavar="CMAKE_NAME",
                        help="what to build for, such as 90-real; default: this GPU")  # fmt: skip
    parser.add_argument("--dry-run", action="store_true",
                        help="no GPU: stand-ins for it, small sizes, no build")  # fmt: skip
    return parser.parse_args()


def chosen(args: argparse.Namespace) -> list[str]:
    """The sections to run: an installed package, or a dry run, asks for no build."""
    if args.only:
        return [name for name in SECTIONS if name in args.only]
    left_out = {*args.skip, *(["build"] if args.installed or args.dry_run else [])}
    return [name for name in SECTIONS if name not in left_out]


def environment_of(section: Section, args: argparse.Namespace) -> dict[str, str]:
    """Of a section's process: the built package first, then this folder's helpers."""
    environment = {**os.environ, **section.environment}
    for name in ("XLA_FLAGS",):  # the user's own flags stay
        both = (os.environ.get(name), section.environment.get(name))
        environment[name] = " ".join(filter(None, both))
    built = args.work / "package"
    ready = not args.installed and list(built.glob("mmaemu_jax/_native.*"))
    folders = [str(built)] if ready else []
    folders += [str(ROOT / "tools"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    # Several processes and libraries share the GPU's memory.
    environment.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    return environment


@contextlib.contextmanager
def process_of(name: str, budget: float, args: argparse.Namespace, log) -> Iterator:
    """A section's process, in a session of its own, so that none of its children outlives it."""
    section = SECTIONS[name]
    request = {
        "name": name,
        "function": section.function,
        "seconds": budget,
        "work": str(args.work),
        "dry": args.dry_run,
        "architecture": args.architecture,
    }
    # -P: not this folder's mmaemu_jax, which has no compiled part.
    program = [sys.executable, "-P", "-c", "from gpu.section import main; main()"]
    process = subprocess.Popen(
        [*program, json.dumps(request)], env=environment_of(section, args), stdout=log, stderr=log,
        stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        for how in (signal.SIGTERM, signal.SIGKILL):  # ninja ends its own children when asked to
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, how)
                process.wait(timeout=1)


class Report:
    """All outcomes, written as they come."""

    def __init__(self, args: argparse.Namespace):
        self.args, self.start = args, time.monotonic()
        self.outcomes: dict[str, dict[str, Any]] = {}
        for folder in (args.out, args.work):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def left(self) -> float:
        """Seconds until the time is over."""
        return 60 * self.args.minutes - (time.monotonic() - self.start)

    def run(self, name: str) -> None:
        """One section."""
        budget = min(SECTIONS[name].seconds, self.left)
        if budget < LEAST:
            self.outcomes[name] = {"ok": None, "text": "the time is over", "seconds": 0.0}
            return
        start, log = time.monotonic(), self.args.work / f"{slug(name)}.log"
        for stale in self._files(name):
            stale.unlink(missing_ok=True)
        with open(log, "w") as stream, process_of(name, budget, self.args, stream) as process:
            code = None
            while code is None and time.monotonic() < start + budget + GRACE:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = process.wait(timeout=2)
                if code is None:
                    self._take(name, "", start)
                    self.write()
        ended = "ended: its time was over" if code is None else f"died with exit status {code}"
        self._take(name, ended, start)

    def _files(self, name: str) -> tuple[pathlib.Path, pathlib.Path]:
        return tuple(self.args.work / f"{slug(name)}{end}" for end in (".json", ".jsonl"))

    def _take(self, name: str, otherwise: str, start: float) -> None:
        """What a section's process has written; ``otherwise`` says what became of it."""
        outcome, rows = self._files(name)
        found = {"ok": False, "text": otherwise or "still running"}
        if outcome.exists():
            found = json.loads(outcome.read_text())
        elif otherwise:
            log = self.args.work / f"{slug(name)}.log"
            found["log"] = log.read_text(errors="replace")[-4000:]
        lines = rows.read_text().splitlines() if rows.exists() else []
        found["rows"] = [json.loads(line) for line in lines if line.endswith("}")]
        if otherwise and not outcome.exists():
            found["text"] += f" after {len(lines)} results"
        self.outcomes[name] = found | {"seconds": round(time.monotonic() - start, 1)}

    def line(self, name: str) -> str:
        """One line of the table."""
        outcome = self.outcomes[name]
        mark = {True: "ok", False: "FAILED", None: "skipped"}[outcome["ok"]]
        return f"{name:<16} {mark:<8} {outcome['seconds']:6.1f} s  {outcome['text']}"

    @property
    def ok(self) -> bool:
        return all(outcome["ok"] is not False for outcome in self.outcomes.values())

    def write(self) -> None:
        """The table and the JSON; each whole or not at all."""
        report = {"dry_run": self.args.dry_run, "ok": self.ok, "sections": self.outcomes}
        table = "".join(f"{self.line(name)}\n" for name in self.outcomes)
        for name, text in (
            ("gpu_check.json", json.dumps(report, indent=1)), ("gpu_check.txt", table)
        ):  # fmt: skip
            scratch = self.args.out / f"{name}.part"
            scratch.write_text(text)
            scratch.replace(self.args.out / name)

    def pack(self) -> None:
        """The sections' own files (logs, HLO, bits, recordings) in one archive."""
        left_out = {self.args.work / name for name in ("build", "package")}
        with zipfile.ZipFile(self.args.out / "gpu_check.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(self.args.work.rglob("*")):
                if path.is_file() and not left_out & set(path.parents):
                    archive.write(path, path.relative_to(self.args.work))


def slug(name: str) -> str:
    """A section's name in file names."""
    return name.replace(" ", "_")


def main() -> int:
    args = parse()
    report = Report(args)
    try:
        for name in chosen(args):
            report.run(name)
            report.write()
            print(report.line(name), flush=True)
    finally:
        report.pack()
    print(f"{report.args.minutes * 60 - report.left:.0f} s; {args.out / 'gpu_check.json'}")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
