"""Time per emulated GEMM, read back from a trace of ``jax.profiler``.

A trace names HLO instructions only (``mmaemu_scaled_mm.1`` of module ``jit_step``). The names of
the source, with every ``jax.named_scope``, are in the compiled program; :func:`gemm_times` joins
the two.
"""

import dataclasses
import pathlib
import re
import warnings
from collections.abc import Iterable, Iterator

import jax

from mmaemu_jax.errors import message

#: How every emulated GEMM begins its name in an HLO module and in a trace.
GEMM_NAME = "mmaemu_scaled_mm"

_MODULE = re.compile(r"^HloModule ([^\s,]+)", re.MULTILINE)
_INSTRUCTION = re.compile(
    rf'^\s*(?:ROOT )?%?({GEMM_NAME}[\w.-]*) = .*?\bmetadata=\{{[^}}]*?op_name="([^"]*)"',
    re.MULTILINE,
)


@dataclasses.dataclass(frozen=True)
class GemmTime:
    """One emulated GEMM of a compiled program, over all its executions in a trace.

    Attributes:
        name: of the HLO instruction, such as "mmaemu_scaled_mm.1".
        module: the HLO module, such as "jit_step".
        op_name: the names of the source, such as "jit(step)/layer0/mmaemu_scaled_mm"; "" if no
            given program has this instruction.
        calls: executions.
        total_ns, best_ns: time of all and of the shortest, in nanoseconds.
    """

    name: str
    module: str
    op_name: str
    calls: int
    total_ns: float
    best_ns: float

    @property
    def mean_ns(self) -> float:
        """Average time of an execution."""
        return self.total_ns / self.calls


def gemm_times(
    trace_dir: str | pathlib.Path, compiled: Iterable[str | jax.stages.Compiled] = ()
) -> tuple[GemmTime, ...]:
    """What each emulated GEMM took in the traces below ``trace_dir``, longest total first.

    Args:
        trace_dir: the directory given to ``jax.profiler.trace``; an ``.xplane.pb`` file works too.
        compiled: the programs that ran, as ``jitted.lower(...).compile()`` or its ``as_text()``.
            Without them every ``op_name`` is "". Programs of one name whose instructions come
            from different sources give all of their names, joined by " | ".

    Returns:
        One row per instruction; empty if no emulated GEMM ran on a CPU while tracing.
        ``backend="reference"`` computes in ordinary XLA operations and has no row.

    Raises:
        FileNotFoundError: no trace is there.
    """
    op_names = _op_names(compiled)
    durations: dict[tuple[str, str], list[float]] = {}
    for path in _trace_files(pathlib.Path(trace_dir)):
        for module, name, nanoseconds in _gemm_events(path):
            durations.setdefault((module, name), []).append(nanoseconds)
    rows = [
        GemmTime(
            name, module, " | ".join(op_names.get((module, name), ())), len(ns), sum(ns), min(ns)
        )
        for (module, name), ns in durations.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.total_ns))


def _op_names(compiled: Iterable[str | jax.stages.Compiled]) -> dict[tuple[str, str], list[str]]:
    """The distinct source names of (module, instruction)."""
    if isinstance(compiled, str | jax.stages.Compiled):
        compiled = [compiled]
    found: dict[tuple[str, str], list[str]] = {}
    for program in compiled:
        text = program if isinstance(program, str) else program.as_text() or ""
        module = _MODULE.search(text)
        if module is None:
            raise ValueError("gemm_times: compiled must be texts of HLO modules or jax Compiled.")
        for name, op_name in _INSTRUCTION.findall(text):
            names = found.setdefault((module[1], name), [])
            if op_name not in names:
                names.append(op_name)
    return found


def _trace_files(path: pathlib.Path) -> list[pathlib.Path]:
    files = [path] if path.is_file() else sorted(path.rglob("*.xplane.pb"))
    if not files:
        raise FileNotFoundError(
            message(
                f"gemm_times: no .xplane.pb file in {str(path)!r}.",
                ["record one: with jax.profiler.trace(trace_dir): ..."],
            )
        )
    return files


def _gemm_events(path: pathlib.Path) -> Iterator[tuple[str, str, float]]:
    """(module, instruction, nanoseconds) of each execution of an emulated GEMM."""
    with warnings.catch_warnings():
        # jaxlib's own classes, on Python 3.13: "builtin type event_stats has no __module__".
        warnings.filterwarnings("ignore", "builtin type", DeprecationWarning)
        for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
            for line in plane.lines:
                for event in line.events:
                    if not event.name.startswith(GEMM_NAME):
                        continue
                    stats = dict(event.stats)
                    if "hlo_op" in stats:
                        yield str(stats["hlo_module"]), event.name, event.duration_ns
