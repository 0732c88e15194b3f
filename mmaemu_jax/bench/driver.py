"""Starts the measuring processes: a fresh one per row, pinned before JAX starts in it."""

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mmaemu_jax.bench.case import BenchCase
from mmaemu_jax.bench.program import plan_of
from mmaemu_jax.errors import message

#: Runs in the new process. Pinning comes first: XLA sizes its thread pool when it starts.
_PROGRAM = """
import os
cpus = {cpus!r}
if cpus is not None:
    os.sched_setaffinity(0, cpus)
from mmaemu_jax.bench.worker import main
main()
"""


def measure(
    cases: Sequence[BenchCase],
    *,
    threads: Iterable[int | None] = (1,),
    repeat: int = 5,
    trace: pathlib.Path | None = None,
    peer: bool = False,
    on_start: Callable[[int, int, str], None] = lambda number, total, label: None,
    on_row: Callable[[dict[str, Any]], None] = lambda row: None,
) -> dict[str, Any]:
    """Measures every case on every number of threads.

    Args:
        cases: what to measure.
        threads: CPUs of each process; None is all, unpinned.
        repeat: calls of each program at most; the best counts.
        trace: folder for a trace per row.
        peer: measure the torch package mmaemu as well.
        on_start: is given number, total and label before each measurement.
        on_row: is given each row as soon as it is there.

    Returns:
        {"rows": [...], "overhead": [...]}, JSON-ready.

    Raises:
        ValueError, MmaemuError: what scaled_mm refuses, more threads than CPUs.
    """
    for case in cases:
        _refuse(case)
    pinned = [(count, _cpus(count)) for count in threads]
    per_backend = {case.backend: case for case in reversed(cases)}
    jobs: list[tuple[str, BenchCase, int, set[int] | None]] = [
        (kind, case, count or os.cpu_count() or 1, cpus)
        for count, cpus in pinned
        for kind, chosen in (("row", cases), ("overhead", [*per_backend.values()][::-1]))
        for case in chosen
    ]
    report: dict[str, Any] = {"rows": [], "overhead": []}
    for number, (kind, case, count, cpus) in enumerate(jobs, 1):
        on_start(number, len(jobs), f"{kind} {case.label} threads={count}")
        request = {"kind": kind, "case": case.to_dict(), "threads": count, "repeat": repeat}
        if kind == "overhead":
            report["overhead"].append(_answer(request, cpus))
            continue
        folder = None if trace is None else str(trace / f"{number:02d}_{case.label}_{count}")
        row = _answer({**request, "trace": folder, "peer": peer}, cpus)
        report["rows"].append(row)
        on_row(row)
    return report


def can_pin() -> bool:
    """Whether this system lets a process choose its CPUs."""
    return hasattr(os, "sched_setaffinity")


def _refuse(case: BenchCase) -> None:
    """Raises what the call would raise."""
    if min(case.shape) < 1:
        raise ValueError(f"bench: the shape must have positive dimensions, got {case.shape}.")
    error = plan_of(case).error
    if error is not None:
        raise error


def _cpus(count: int | None) -> set[int] | None:
    if count is None:
        return None
    if not can_pin():
        raise ValueError(message("bench: this system cannot pin a process.", ["no --threads"]))
    usable = sorted(os.sched_getaffinity(0))
    if not 1 <= count <= len(usable):
        raise ValueError(f"bench: --threads must be in 1..{len(usable)} here, got {count}.")
    return set(usable[:count])


def _answer(request: dict[str, Any], cpus: set[int] | None) -> dict[str, Any]:
    environment = {
        "JAX_PLATFORMS": "cpu",  # unless the caller's says otherwise
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    process = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(cpus=cpus)],
        input=json.dumps(request),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode != 0:
        raise RuntimeError(f"bench: the measuring process failed:\n{process.stderr}")
    return json.loads(process.stdout.splitlines()[-1])
