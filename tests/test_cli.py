"""``python -m mmaemu_jax``: exit codes, output for people and for programs."""

import importlib
import json
import subprocess
import sys

import jax
import numpy as np
import pytest

import mmaemu_jax as mj
from mmaemu_jax import cli, demo
from mmaemu_jax.data import load_evo2_projections
from mmaemu_jax.selftest import BackendResult, SelfTestReport


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


def run_json(capsys, *argv: str) -> dict:
    cli.main([*argv, "--json"])
    return json.loads(capsys.readouterr().out)


# info


def test_info(capsys):
    assert cli.main(["info"]) == 0
    text = capsys.readouterr().out
    for part in (mj.__version__, "jaxlib", "numpy", "cpu:scalar", "cuda", "hopper-xla",
                 "b200_mma_sync", "Devices"):  # fmt: skip
        assert part in text
    facts = run_json(capsys, "info")
    assert facts["versions"]["jax"] == jax.__version__
    assert [b["name"] for b in facts["backends"]] == [s.name for s in mj.backends_status()]
    assert [p["name"] for p in facts["profiles"]] == list(mj.list_profiles())
    assert [p["name"] for p in facts["presets"]] == list(mj.list_presets())


# explain


def test_explain(capsys):
    assert cli.main(["explain", "16", "2048", "8192", "--out", "bf16", "--fast"]) == 0
    assert "S = 2 (contiguous), source table, verified" in capsys.readouterr().out
    options = ["--a", "e5m2", "--out", "e4m3", "--profile", "ada", "--splitk", "4,serial"]
    argv = ["explain", "16", "2048", "8192", *options, "--scale-result", "--backend", "cpu:scalar"]
    plan = run_json(capsys, *argv)
    assert plan["split"]["S"] == 4
    assert plan["backend"]["name"] == "cpu:scalar"
    assert plan["call"]["input"] == {"shape": [16, 8192], "dtype": "float8_e5m2"}
    assert plan["call"]["out_dtype"] == "float8_e4m3fn"
    assert plan["call"]["scale_result"]["dtype"] == "float32"


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["17", "24", "8192"], "ReferenceRejectsError"),
        (["17", "48", "8192"], "SplitKUnknownError"),
        (["17", "48", "8192", "--splitk", "4,serial"], "ValueError"),
        (["17", "48", "8192", "--splitk", "1", "--out", "float64"], "ReferenceRejectsError"),
        (["17", "48", "8192", "--splitk", "1", "--backend", "cuda"], "BackendUnavailableError"),
    ],
)
def test_explain_a_call_that_raises(capsys, argv, error):
    assert cli.main(["explain", *argv]) == 1
    assert f"raises {error}" in capsys.readouterr().out
    assert run_json(capsys, "explain", *argv)["error"]["class"] == error


@pytest.mark.parametrize(
    "argv",
    [
        ["16", "16"],
        ["16"],
        ["16", "16", "16", "16"],
        ["-1", "16", "16"],
        ["16", "16", "x"],
        ["16", "16", "16", "--profile", "nope"],
        ["16", "16", "16", "--out", "nope"],
        ["16", "16", "16", "--a", "bf16"],
        ["16", "16", "16", "--splitk", "some"],
        ["16", "16", "16", "--splitk", "x,serial"],
        ["16", "16", "16", "--backend", "nope"],
        ["16", "16", "--sweep-m", "1"],
        ["16", "16", "--sweep-m", "9:1"],
        ["16", "16", "--sweep-m", "1:9:0"],
        ["16", "--sweep-m", "1:9"],
    ],
)
def test_explain_usage(capsys, argv):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["explain", *argv])
    assert stopped.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_explain_sweeps_m(capsys):
    assert cli.main(["explain", "45", "2048", "8192", "--fast", "--sweep-m", "1:4096"]) == 0
    text = capsys.readouterr().out
    assert "1..40" in text
    assert "NOT batch-invariant: 2 different splits." in text
    assert "M = 45: S = 1 (none)" in text
    report = run_json(capsys, "explain", "2048", "8192", "--fast", "--sweep-m", "16:64:16")
    assert [(r["first"], r["last"], r["S"]) for r in report["runs"]] == [(16, 48, 2), (64, 64, 1)]
    assert cli.main(["explain", "9", "16", "64", "--splitk", "1", "--sweep-m", "1:2"]) == 0
    assert "M = 9: not in the sweep" in capsys.readouterr().out


def test_explain_draws_a_sweep(capsys, tmp_path):
    sweep = ["explain", "2048", "8192", "--sweep-m", "1:64"]
    assert cli.main([*sweep, "--plot", str(tmp_path / "sweep.png")]) == 0
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit):
        cli.main(["explain", "16", "2048", "8192", "--plot", str(tmp_path / "no.png")])
    assert "--plot draws a sweep" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_explain_without_matplotlib_prints_the_sweep(capsys, monkeypatch, tmp_path, options):
    monkeypatch.setattr("mmaemu_jax.plotting.have_matplotlib", lambda: False)
    path = tmp_path / "sweep.png"
    sweep = ["explain", "2048", "8192", "--fast", "--sweep-m", "1:64", *options]
    assert cli.main(sweep) == 0
    table = capsys.readouterr().out
    assert cli.main([*sweep, "--plot", str(path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == table
    assert "pip install matplotlib, or this package's extra 'plots'" in printed.err
    assert not path.exists()


# selftest


def test_selftest(capsys):
    assert cli.main(["selftest", "--backend", "cpu:scalar"]) == 0
    text = capsys.readouterr().out
    assert "[6/6]" in text
    assert "cpu:scalar   ok" in text
    assert cli.main(["selftest", "--backend", "nope"]) == 2


def test_selftest_as_json(capsys, monkeypatch):
    report = SelfTestReport((BackendResult("cpu:x", 3, ("differs",)), BackendResult("y", 3)))
    monkeypatch.setattr(
        importlib.import_module("mmaemu_jax.selftest"), "selftest", lambda *_, **__: report
    )
    assert cli.main(["selftest", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["ok"]
    assert found["backends"][0]["problems"] == ["differs"]


# Pipes


@pytest.mark.parametrize("command", ["info", "explain 2048 8192 --sweep-m 1:4096"])
def test_a_closed_pipe_leaves_no_traceback(command):
    with subprocess.Popen(
        [sys.executable, "-m", "mmaemu_jax", *command.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


@pytest.mark.parametrize("command", ["info", "explain", "selftest", "demo"])
def test_help(capsys, command):
    with pytest.raises(SystemExit) as stopped:
        cli.main([command, "--help"])
    assert stopped.value.code == 0
    assert "usage:" in capsys.readouterr().out
