"""``python -m mmaemu_jax``: exit codes, output for people and for programs."""

import json
import subprocess
import sys

import numpy as np
import pytest

from mmaemu_jax import cli, demo
from mmaemu_jax.data import load_evo2_projections


def test_demo_replays_the_hardware(capsys):
    assert cli.main(["demo", "--no-speed"]) == 0
    out = capsys.readouterr().out
    assert "all equal to the hardware's bits" in out
    assert out.count("equal  ") == 6  # three calls, two outputs each


def test_demo_as_json(capsys):
    assert cli.main(["demo", "--json", "--no-speed", "--backend", "cpu:scalar"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [p["ada"]["differing"] for p in report["projections"]] == [0] * 6
    # XLA's own float32-accumulated dot is another arithmetic: the demo has to show that.
    assert all(p["xla"]["differing"] > 0 for p in report["projections"])
    assert all(p["hopper"]["differing"] > 0 for p in report["projections"])


def test_demo_reports_a_difference(capsys, monkeypatch):
    projections = load_evo2_projections()
    projections[1].outputs[0].bits.view(np.uint32)[3, 5] ^= 1
    monkeypatch.setattr(demo, "load_evo2_projections", lambda: projections)
    assert cli.main(["demo", "--no-speed"]) == 1
    assert "1 differ from the hardware's bits" in capsys.readouterr().out


@pytest.mark.parametrize("backend", ["cpu:no_such", "cuda"])
def test_demo_refuses_a_backend(backend, capsys):
    assert cli.main(["demo", "--backend", backend]) == 2
    assert backend in capsys.readouterr().err


def test_module_runs_and_usage_errors_exit_with_2():
    command = [sys.executable, "-m", "mmaemu_jax"]
    assert subprocess.run([*command, "--help"], capture_output=True, check=False).returncode == 0
    assert subprocess.run([*command, "nonsense"], capture_output=True, check=False).returncode == 2


def test_speed_report_has_a_ratio(monkeypatch):
    monkeypatch.setattr(demo, "TIMED_ROWS", 32)
    monkeypatch.setattr(demo, "TIMED_COLUMNS", 64)
    names = [(s.name, s.gmacs > 0, s.ratio > 0) for s in demo.measure()]
    assert names == [("XLA float32 dot", True, True), ("ada", True, True), ("hopper", True, True)]
