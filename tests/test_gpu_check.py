"""tools/gpu_check.py without a GPU: its sections survive each other, and its build."""

import json
import os
import pathlib
import subprocess
import sys
import time
import zipfile

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
    """Its own sections, by one of them, as a user types it; every flag of XLA's is known."""
    import gpu_check
    from gpu import native_jax

    flags = " ".join({*native_jax.FLAGS.values(), gpu_check.GRAPHS})
    command = [sys.executable, str(TOOLS / "gpu_check.py"), "--dry-run", "--only", "extension"]
    command += ["--out", str(tmp_path), "--work", str(tmp_path / "work")]
    environment = os.environ | {"XLA_FLAGS": flags}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + (tmp_path / "work" / "extension.log").read_text()
    assert "NVIDIA H100 PCIe (sm_90, 114 SMs)" in done.stdout


# ---------------------------------------------------------------- the build


def fake_programs(folder: pathlib.Path, monkeypatch, nvcc: bool = True) -> pathlib.Path:
    """cmake, nvidia-smi and nvcc that are none; what cmake was asked is written to a file."""
    log = folder / "asked"
    cuda = "" if nvcc else "case $* in *CUDA=ON*) echo 'Error: no nvcc'; exit 1;; esac\n"
    texts = {
        "nvidia-smi": "echo 9.0; echo 9.0",
        "nvcc": "echo 'Cuda compilation tools, release 12.9, V12.9'",
        "ninja": "exit 1",
        "cmake": f"echo $* >>{log}\n{cuda}"
        "if [ $1 = --build ]; then mkdir -p $2/lib; : >$2/lib/$4.fake.so; fi",
    }
    for name, text in texts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return log


def build(work: pathlib.Path):
    from gpu import build
    from gpu.section import Section

    section = Section("build", work, False, 60)
    return build.build(section), section.rows


@pytest.mark.parametrize("nvcc", [True, False])
def test_build(monkeypatch, tmp_path, nvcc):
    (tmp_path / "bin").mkdir()
    log = fake_programs(tmp_path / "bin", monkeypatch, nvcc)
    outcome, rows = build(tmp_path)
    made = {path.name for path in (tmp_path / "package" / "mmaemu_jax").glob("*.so")}
    assert "_native" in {row.get("built") for row in rows}
    assert "-DMMAEMU_JAX_CUDA_ARCHITECTURES=90-real" in log.read_text()
    assert f"-DCMAKE_CUDA_COMPILER={tmp_path}/bin/nvcc" in log.read_text()
    assert f"-DPython_EXECUTABLE={sys.executable}" in log.read_text()
    assert (tmp_path / "package" / "mmaemu_jax" / "cuda.py").exists()
    if nvcc:
        assert outcome.ok
        assert "90-real in" in outcome.text
        assert "nvcc release 12.9" in outcome.text
        assert made == {"_native.fake.so", "_native_cuda.fake.so"}
    else:
        assert not outcome.ok
        assert "no CUDA kernels: configure: Error: no nvcc" in outcome.text
        assert made == {"_native.fake.so"}, "the other sections have the CPU's part"


def test_build_without_a_gpu(monkeypatch, tmp_path):
    from gpu import build

    (tmp_path / "bin").mkdir()
    fake_programs(tmp_path / "bin", monkeypatch)
    (tmp_path / "bin" / "nvidia-smi").write_text("#!/bin/sh\necho No devices were found\n")
    with pytest.raises(build.BuildError, match="nvidia-smi shows no GPU"):
        build.gpu_architecture()
