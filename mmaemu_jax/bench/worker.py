"""The process that measures one row: a request as JSON on stdin, the row as JSON on stdout."""

import json
import pathlib
import sys
import warnings
from typing import Any

import jax
import numpy as np

from mmaemu_jax.bench import program, timing
from mmaemu_jax.bench.case import BenchCase
from mmaemu_jax.bench.memory import extra_bytes
from mmaemu_jax.bench.peer import measure_peer
from mmaemu_jax.errors import MmaemuWarning
from mmaemu_jax.profiling import gemm_times

_TRACED_STEPS = 3


def main() -> None:
    """Answers the request on stdin."""
    request = json.load(sys.stdin)
    # What a result is worth as evidence does not matter to its time.
    warnings.simplefilter("ignore", MmaemuWarning)
    case = BenchCase.from_dict(request.pop("case"))
    answer = measure_overhead if request.pop("kind") == "overhead" else measure_row
    print(json.dumps(answer(case, **request)))


def measure_overhead(case: BenchCase, *, threads: int, repeat: int) -> dict[str, Any]:
    """The overhead of a call of this case's arithmetic on the tiny shape."""
    case = timing.tiny(case)
    dot, ours = timing.overhead(case, repeat)
    return {
        "shape": list(case.shape),
        "backend": program.backend_used(case),
        "threads": threads,
        "seconds": ours,
        "dot_seconds": dot,
        "ratio_of_times": ours / dot,
    }


def measure_row(
    case: BenchCase, *, threads: int, repeat: int, trace: str | None, peer: bool
) -> dict[str, Any]:
    """Everything about one case."""
    a, w = program.operands(case)
    stored = program.stored_weights(case, w)
    # The first call starts threads and runs self-tests, whose memory is not this GEMM's.
    jax.block_until_ready(program.emulated(timing.tiny(case))(*_tiny_operands(case)))
    arrays = [jax.device_put(x) for x in (a, stored)]
    ours = program.emulated(case).lower(*arrays).compile()
    result, extra = extra_bytes(lambda: ours(*arrays))
    bits = np.asarray(result)
    floats = [jax.device_put(x.astype(np.float32)) for x in (a, stored)]
    dot = program.float32_dot(case).lower(*floats).compile()
    timing.seconds_of(lambda: dot(*floats))
    dot_times, times = timing.interleaved(lambda: dot(*floats), lambda: ours(*arrays), repeat)
    return {
        "case": case.to_dict(),
        "backend": program.backend_used(case),
        "threads": threads,
        "repeats": len(times),
        "seconds": min(times),
        "dot_seconds": min(dot_times),
        "gmacs": case.macs / min(times) / 1e9,
        "dot_gmacs": case.macs / min(dot_times) / 1e9,
        "ratio": min(dot_times) / min(times),
        "extra_bytes": extra,
        "check": program.check(case, a, w, bits),
        "peer": measure_peer(case, a, w, bits, threads) if peer else None,
        "trace": None if trace is None else _traced(case, trace, ours, arrays),
    }


def _tiny_operands(case: BenchCase) -> list[np.ndarray]:
    tiny = timing.tiny(case)
    a, w = program.operands(tiny)
    return [a, program.stored_weights(tiny, w)]


def _traced(
    case: BenchCase, folder: str, compiled: jax.stages.Compiled, arrays: list
) -> list[dict[str, Any]]:
    """Records a trace of a few steps with their program's text, and reads both back."""
    if program.backend_used(case) == "reference":
        return []  # ordinary XLA operations: no row of ours among millions of events
    text = compiled.as_text() or ""
    with jax.profiler.trace(folder):
        for _ in range(_TRACED_STEPS):
            jax.block_until_ready(compiled(*arrays))
    path = pathlib.Path(folder)
    (path / "bench_step.hlo.txt").write_text(text)
    # The folder may hold traces of an earlier benchmark.
    newest = max(path.rglob("*.xplane.pb"), key=lambda file: file.stat().st_mtime)
    return [
        {
            "name": row.name,
            "module": row.module,
            "op_name": row.op_name,
            "calls": row.calls,
            "mean_seconds": row.mean_ns / 1e9,
            "best_seconds": row.best_ns / 1e9,
        }
        for row in gemm_times(newest, [text])
    ]
