"""Python programs in processes of their own, for what a process fixes when it starts."""

import os
import subprocess
import sys

TESTS = os.path.dirname(__file__)


def start_python(program: str, **environment: str) -> subprocess.Popen:
    """Starts ``program`` with this process's module path and the given variables added."""
    path = os.pathsep.join([TESTS, *filter(None, sys.path)])
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output_of(process: subprocess.Popen) -> str:
    """What a program printed; an AssertionError with its errors if it failed."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out.strip()


def run_python(program: str, **environment: str) -> str:
    """Runs ``program`` and returns what it printed."""
    return output_of(start_python(program, **environment))
