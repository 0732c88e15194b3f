"""The censuses of one test run as a JSON file: what `pytest --census=FILE` writes.

tools/write_validation.py makes docs/validation.md of such files.
"""

import json
import pathlib
import platform
import shlex

import agreement_census
import jax
import jaxlib
import numpy as np
import recordings_census

from mmaemu_jax import _native

OUTCOMES = ("passed", "failed", "error", "skipped")
#: Arguments that change how a run is started or shown, and not what it compares.
PRESENTATION = ("--census", "-n", "-q", "-p")


def command_of(arguments) -> str:
    """The pytest command that compares the same things, without its PRESENTATION."""
    arguments = iter(arguments)
    kept = []
    for argument in arguments:
        if argument in ("-n", "-p", "--census"):
            next(arguments, None)
        elif not argument.startswith(PRESENTATION):
            kept.append(argument)
    return shlex.join(["python", "-m", "pytest", *kept])


def write(terminalreporter, file: str) -> None:
    """Writes what the run of ``terminalreporter`` compared, under which versions, to ``file``."""
    run = {
        "command": command_of(terminalreporter.config.invocation_params.args),
        "versions": {
            "python": platform.python_version(),
            "jax": jax.__version__,
            "jaxlib": jaxlib.__version__,
            "numpy": np.__version__,
        },
        "machine": platform.machine(),
        "kernels": [name for name, usable, _ in _native.cpu_targets() if usable],
        "tests": {name: len(terminalreporter.stats.get(name, ())) for name in OUTCOMES},
        "recordings": _records(recordings_census, terminalreporter),
        "agreement": _records(agreement_census, terminalreporter),
        "agreement skipped": agreement_census.skipped_of(terminalreporter),
    }
    path = pathlib.Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(run, indent=2) + "\n")


def _records(census, terminalreporter) -> list[dict]:
    rows = census.rows_of(terminalreporter)
    return [dict(zip(census.COLUMNS, row, strict=True)) for row in rows]
