"""docs/examples/multi_process.py: two processes return the bits of one."""

import pathlib
import socket

import pytest
from processes import output_of, start_python

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "docs" / "examples" / "multi_process.py"
CASES = ["data-parallel", "tensor-parallel, gathered", "tensor-parallel, 4 ranks"]


def start(devices: int, *arguments: str):
    run = (
        "import runpy, sys\n"
        f"sys.argv = {['multi_process.py', *arguments]!r}\n"
        f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    )
    return start_python(run, XLA_FLAGS=f"--xla_force_host_platform_device_count={devices}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def digests(output: str) -> dict[str, str]:
    """What a run printed, without the lines of its communication library."""
    pairs = (line.rsplit(": ", 1) for line in output.splitlines())
    return {case: digest for case, digest in pairs if case in CASES}


@pytest.fixture(scope="module")
def one_process() -> dict[str, str]:
    return digests(output_of(start(1)))


def test_one_process(one_process):
    assert list(one_process) == CASES
    data, gathered, ranks = one_process.values()
    assert data == gathered
    assert ranks != gathered


def test_two_processes(one_process):
    """Two devices each: the reduction runs over the four of them."""
    common = ("--processes", "2", "--coordinator", f"localhost:{free_port()}", "--id")
    both = [start(2, *common, str(i)) for i in range(2)]
    try:
        printed, nothing = (output_of(process) for process in both)
    finally:
        for process in both:  # one that waits for the other would wait for long
            process.kill()
    assert digests(printed) == one_process
    assert digests(nothing) == {}
