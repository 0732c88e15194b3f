"""The process of one section of tools/gpu_check.py: its budget, its results as they come."""

import dataclasses
import importlib
import json
import os
import pathlib
import sys
import time
import traceback
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a section says at its end; ``ok`` is None where there was nothing to ask."""

    ok: bool | None
    text: str


class Section:
    """What a section's function is given.

    Attributes:
        name: the section's.
        work: the folder for its files.
        dry: there is no GPU; stand-ins for it and small sizes (:mod:`gpu.stand_in`).
        seconds: its share of the time.
        architecture: what to build for, as CMake names it; "" is the GPU that is there.
    """

    def __init__(
        self, name: str, work: pathlib.Path, dry: bool, seconds: float, architecture: str = ""
    ):
        self.name, self.work, self.dry, self.seconds = name, work, dry, seconds
        self.architecture = architecture
        self._end = time.monotonic() + seconds
        self.rows: list[dict[str, Any]] = []

    @property
    def left(self) -> float:
        """Seconds until its share is over."""
        return self._end - time.monotonic()

    def note(self, **row: Any) -> None:
        """Keeps one result, whatever becomes of the section."""
        self.rows.append(row)
        with open(self._path("jsonl"), "a") as stream:  # one write: threads may note at a time
            stream.write(json.dumps(row, default=str) + "\n")

    def finish(self, outcome: Outcome, error: str = "") -> None:
        """Writes the outcome, with the traceback of an error."""
        written = dataclasses.asdict(outcome) | ({"traceback": error} if error else {})
        scratch = self._path("part")
        scratch.write_text(json.dumps(written))
        scratch.replace(self._path("json"))

    def _path(self, suffix: str) -> pathlib.Path:
        return self.work / f"{self.name.replace(' ', '_')}.{suffix}"


def run(section: Section, function: str) -> Outcome:
    """The outcome of "module:function"; an unexpected error is one."""
    module, name = function.split(":")
    error = ""
    try:
        if section.dry and module != "gpu.build":
            from gpu import stand_in

            stand_in.install()
        outcome = getattr(importlib.import_module(module), name)(section)
    except Exception as problem:
        outcome = Outcome(False, f"{type(problem).__name__}: {problem}"[:300])
        error = traceback.format_exc()
    section.finish(outcome, error)
    return outcome


def main() -> None:
    """Answers the request in the first argument."""
    request = json.loads(sys.argv[1])
    function = request.pop("function")
    run(Section(**request | {"work": pathlib.Path(request["work"])}), function)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a GPU in a bad state can hang a runtime's own end
