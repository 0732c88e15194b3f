"""Forked processes, watched: what a child reports, what it costs, and its end.

jax is imported before anything is forked and never used there: a process that has started no
computation has no threads that a fork would lose.
"""

import dataclasses
import importlib
import json
import os
import pathlib
import resource
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import TextIO

from tools.mutation.mutant import ROOT

LOG = ROOT / "build" / "mutation" / "python.log"
#: What every child needs, of other packages than the one under test.
PRELOADED = ("jax", "jax.numpy", "jax.export", "ml_dtypes", "numpy.testing", "pytest")
#: Bytes of address space: some mutants allocate without end.
MEMORY = 24 << 30
#: On a busy machine a process waits; one that waits this many times longer than it may work hangs.
PATIENCE = 30


@dataclasses.dataclass
class Outcome:
    """What a process did.

    Attributes:
        status: "passed", "failed", "broken" (the package does not import), "died", "timeout".
        test: the id of the test that failed, or ran when the process died or was stopped.
        seconds: of processor time, of each test that was finished.
        lines: of each, the executed lines of each traced file.
    """

    status: str = "died"
    test: str = ""
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    lines: dict[str, dict[str, list[int]]] = dataclasses.field(default_factory=dict)

    def hear(self, what: str, value) -> None:
        """Takes one message of the child."""
        if what == "start":
            self.test = value
        elif what == "done":
            name, self.seconds[name], self.lines[name] = value[0], value[1], value[2]
        elif what in ("failed", "broken"):
            self.status, self.test = what, value
        elif what == "end":
            self.status, self.test = "passed", ""


@dataclasses.dataclass(frozen=True)
class Teller:
    """The child's end of the pipe."""

    pipe: TextIO

    def __call__(self, what: str, value: object = None) -> None:
        self.pipe.write(json.dumps([what, value]) + "\n")
        self.pipe.flush()


def prepare() -> None:
    """Imports what every child needs; nothing of the package under test."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read by the import of numpy; a pool is a thread
    os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # most tests only compile
    warnings.filterwarnings("ignore", message="os.fork", category=RuntimeWarning)
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    os.chdir(ROOT)
    for name in PRELOADED:
        importlib.import_module(name)


def fork(body: Callable[[Teller], None], log: pathlib.Path = LOG) -> tuple[int, int]:
    """Runs ``body`` in a new process: its id, and the descriptor that its messages come from."""
    log.parent.mkdir(parents=True, exist_ok=True)
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    code = 1
    try:
        os.close(reading)
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        body(Teller(os.fdopen(writing, "w")))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def messages(reading: int, every: float) -> Iterator[tuple[str, object] | None]:
    """What a process tells, until its end; None each time that it was silent for a while."""
    buffer = b""
    while True:
        if not select.select([reading], [], [], every)[0]:
            yield None
        elif data := os.read(reading, 1 << 16):
            *lines, buffer = (buffer + data).split(b"\n")
            yield from map(json.loads, lines)
        else:
            return


def end(child: int, reading: int) -> None:
    """Ends a process that :func:`fork` started."""
    os.close(reading)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def watch(body: Callable[[Teller], None], allowed: Callable[[str], float]) -> Outcome:
    """The outcome of ``body`` in a new process.

    A test may take ``allowed(its id)`` seconds of processor time, and what is before the tests
    ``allowed("")``.
    """
    child, reading = fork(body)
    outcome, before, since = Outcome(), 0.0, time.monotonic()
    try:
        for message in messages(reading, every=0.5):
            if message is not None:
                outcome.hear(*message)
                before, since = processor_seconds(child), time.monotonic()
            elif (
                processor_seconds(child) - before > (limit := allowed(outcome.test))
                or time.monotonic() - since > PATIENCE * limit
            ):
                outcome.status = "timeout"
            if outcome.status != "died":
                break
    finally:
        end(child, reading)
    return outcome


def processor_seconds(process: int) -> float:
    """Processor time of a running process, all threads together."""
    with open(f"/proc/{process}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
