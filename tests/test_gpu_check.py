"""tools/gpu_check.py without a GPU: its sections run, fail where bits are wrong, and survive."""

import json
import os
import pathlib
import subprocess
import sys
import time
import types
import zipfile

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parent.parent
TOOLS = ROOT / "tools"


@pytest.fixture(autouse=True)
def tools_on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))


# ---------------------------------------------------------------- one process per section


def run_script(monkeypatch, tmp_path, sections: dict, *options: str):
    """The exit status and the report of the script with these sections."""
    import gpu_check

    monkeypatch.setattr(gpu_check, "SECTIONS", sections)
    monkeypatch.setattr(gpu_check, "GRACE", 0.2)
    monkeypatch.setattr(gpu_check, "LEAST", 0.1)
    folders = ["--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    monkeypatch.setattr(sys, "argv", ["gpu_check", "--installed", *folders, *options])
    code = gpu_check.main()
    return code, json.loads((tmp_path / "out" / "gpu_check.json").read_text())["sections"]


def bad_sections(*names: str) -> dict:
    import gpu_check

    return {name: gpu_check.Section(f"bad_sections:{name}", 1.0) for name in names}


def test_sections_survive_each_other(monkeypatch, tmp_path, capsys):
    names = ("raises", "dies", "hangs", "nothing", "works")
    code, found = run_script(monkeypatch, tmp_path, bad_sections(*names))
    assert code == 1
    assert {name: found[name]["ok"] for name in names} == {
        "raises": False, "dies": False, "hangs": False, "nothing": None, "works": True
    }  # fmt: skip
    assert "RuntimeError: no such thing" in found["raises"]["text"]
    assert "bad_sections.py" in found["raises"]["traceback"]
    assert found["dies"]["text"] == "died with exit status 9 after 1 results"
    assert found["hangs"]["text"] == "ended: its time was over after 1 results"
    assert [found[name]["rows"] for name in names[:3]] == [[{"before": i}] for i in (1, 2, 3)]
    table = capsys.readouterr().out
    assert table.count("FAILED") == 3
    assert table.count("skipped") == 1
    with zipfile.ZipFile(tmp_path / "out" / "gpu_check.zip") as archive:
        assert {"hangs.jsonl", "works.json", "dies.log"} <= set(archive.namelist())
    child = int((tmp_path / "work" / "child").read_text())
    assert not is_running(child)


def is_running(pid: int) -> bool:
    """Whether a process still does something; a zombie that nobody waits for does not."""
    status = pathlib.Path(f"/proc/{pid}/stat")
    time.sleep(0.05)
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_killed_run_leaves_what_it_had(tmp_path):
    program = (
        "import gpu_check as g; g.SECTIONS = {n: g.Section(f'bad_sections:{n}', 30.0) "
        "for n in ('works', 'hangs')}; g.main()"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TOOLS), str(ROOT / "tests")])}
    command = [sys.executable, "-c", program, "--installed", "--out", str(tmp_path)]
    command += ["--work", str(tmp_path / "work")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        report, end = tmp_path / "gpu_check.json", time.monotonic() + 30
        while not (report.exists() and "hangs" in report.read_text()):
            assert time.monotonic() < end
            time.sleep(0.05)
        process.kill()
    child = int((tmp_path / "work" / "child").read_text())
    os.killpg(os.getpgid(child), 9)
    found = json.loads(report.read_text())["sections"]
    assert found["works"]["ok"]
    assert found["hangs"] == found["hangs"] | {"text": "still running", "rows": [{"before": 3}]}


def test_time_that_is_over_and_sections_by_name(monkeypatch, tmp_path):
    sections = bad_sections("works", "nothing")
    code, found = run_script(monkeypatch, tmp_path, sections, "--only", "nothing")
    assert (code, list(found)) == (0, ["nothing"])
    code, found = run_script(monkeypatch, tmp_path, sections, "--skip", "nothing")
    assert (code, list(found)) == (0, ["works"])
    code, found = run_script(monkeypatch, tmp_path, sections, "--minutes", "0")
    assert found["works"] == {"ok": None, "text": "the time is over", "seconds": 0.0}


def test_the_script_runs_dry(tmp_path):
    """Its own sections, by one of them, as a user types it."""
    command = [sys.executable, str(TOOLS / "gpu_check.py"), "--dry-run", "--only", "extension"]
    command += ["--out", str(tmp_path), "--work", str(tmp_path / "work")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + (tmp_path / "work" / "extension.log").read_text()
    assert "NVIDIA H100 PCIe (sm_90, 114 SMs)" in done.stdout
