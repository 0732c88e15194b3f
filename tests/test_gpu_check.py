"""tools/gpu_check.py without a GPU: its sections run, fail where bits are wrong, and survive."""

import itertools
import json
import os
import pathlib
import subprocess
import sys
import time
import zipfile

import cuda_fakes
import fake_torch
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


def test_without_a_gpu_the_sections_say_so(tmp_path, monkeypatch):
    from gpu import bits
    from gpu.section import Section

    section = Section("any", tmp_path, False, 600)
    cuda_fakes.install(monkeypatch)
    outcome = bits.extension(section)
    assert not outcome.ok
    assert "there is no GPU, or no driver for it; JAX sees no GPU: Unknown backend" in outcome.text
    outcome = bits.self_test(section)
    assert (outcome.ok, outcome.text) == (
        False, "no kernel can run: there is no GPU, or no driver for it"
    )  # fmt: skip


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


# ---------------------------------------------------------------- the sections

quiet = pytest.mark.filterwarnings("ignore::mmaemu_jax.errors.MmaemuWarning")


@pytest.fixture
def see_gpu():
    """Makes the process see a GPU, the given kernel of which is wrong."""
    import implementations
    from gpu import bits, stand_in

    made = []
    yield lambda wrong="": made.append(stand_in.install(wrong))
    for patch in reversed(made):
        patch.undo()
    implementations.compiled.cache_clear()
    bits.chain_of.cache_clear()


def ask(function, work: pathlib.Path, seconds: float = 600):
    """The outcome and the rows of one section, dry."""
    from gpu.section import Section

    section = Section("any", work, True, seconds)
    return function(section), section.rows


@quiet
def test_kernels_that_agree(see_gpu, tmp_path):
    from gpu import bits

    see_gpu()
    for function in (bits.self_test, bits.agreement, bits.command_buffers):
        outcome, _ = ask(function, tmp_path)
        assert outcome.ok, outcome.text
    names = ("cuda:ieee", "cuda:portable", "cuda:wgmma")
    assert json.loads((tmp_path / "kernels.json").read_text()) == dict.fromkeys(names, "passed")


@quiet
def test_a_kernel_that_is_wrong(see_gpu, tmp_path):
    from gpu import bits

    see_gpu("wgmma")
    outcome, _ = ask(bits.agreement, tmp_path)
    assert not outcome.ok
    assert "cuda:wgmma" in outcome.text
    assert "cuda:ieee" not in outcome.text
    outcome, _ = ask(bits.self_test, tmp_path)
    assert not outcome.ok
    assert "cuda:ieee passed; cuda:portable passed; cuda:wgmma its self-test on" in outcome.text
    section = bits.Section("any", tmp_path, True, 600)
    assert bits.trusted_kernels(section) == ["cuda:ieee", "cuda:portable"]
    status = {s.name: s for s in bits.backends.backends_status()}
    assert not status["cuda:wgmma"].usable
    assert "its self-test on" in status["cuda:wgmma"].why_not


@quiet
def test_recordings_and_time_that_is_over(see_gpu, tmp_path):
    from gpu import recorded

    see_gpu()
    outcome, rows = ask(recorded.replay_all, tmp_path)
    assert outcome.ok, outcome.text
    assert {"cuda:wgmma", "auto"} == {row["backend"] for row in rows}
    outcome, rows = ask(recorded.replay_all, tmp_path, seconds=-1)
    assert (outcome.ok, rows) == (False, [])


@quiet
def test_cublaslt_and_torch(see_gpu, tmp_path, monkeypatch):
    from gpu import library, record, torch_gemm

    see_gpu()
    monkeypatch.setitem(sys.modules, "torch", fake_torch.module())
    outcome, rows = ask(library.compare, tmp_path)
    assert outcome.ok, outcome.text
    found = {kind: {v for row in rows if row.get("kind") == kind for v in row["verdicts"]}
             for kind in library.KINDS}  # fmt: skip
    addends = {"one multiply-add", "two roundings, fp32", "two roundings, output"}
    for kind, verdicts in found.items():
        wanted = addends if library.KINDS[kind].addend else {"the CPU's bits", "cuda:wgmma"}
        assert verdicts <= {*wanted, "refused 15"}
        assert verdicts & {"one multiply-add", "cuda:wgmma"}
    outcome, rows = ask(torch_gemm.compare, tmp_path)
    assert outcome.ok
    assert {v for row in rows for v in row["verdicts"]} == {"the CPU's bits", "cuda:wgmma"}
    outcome, rows = ask(record.record, tmp_path)
    assert outcome.ok
    assert list((tmp_path / "recording").glob("gemm_*.npz"))


def test_the_calls_tell_additions_apart():
    """Each hypothesis about an addend has calls on which it differs from each other one."""
    from gpu import library

    pairs = set()
    for kind in ("bias", "beta"):
        for seed, call in itertools.islice(library.calls(library.KINDS[kind]), 8):
            a, b, extra = library.operands_of(library.KINDS[kind], seed, call)
            found = library.hypotheses(call, a, b, "hopper", 1, extra)
            pairs |= {
                (x, y) for x, y in itertools.combinations(found, 2)
                if not library.same_bits(found[x], found[y])
            }  # fmt: skip
    assert len(pairs) == 3


@quiet
def test_speed(see_gpu, tmp_path, monkeypatch):
    from gpu import speed

    see_gpu()
    monkeypatch.setitem(sys.modules, "torch", fake_torch.module())
    monkeypatch.setitem(sys.modules, "mmaemu", fake_torch.peer())
    outcome, rows = ask(speed.measure, tmp_path)
    names = ["native", "cuda:ieee", "cuda:portable", "cuda:wgmma", "torch peer"]
    assert [row["name"] for row in rows] == names
    assert all(row["tmacs"] > 0 for row in rows)
    assert outcome.ok
    assert "(100%)" in outcome.text


@quiet
def test_native_jax(tmp_path, monkeypatch):
    """One program of each kind; emulate stands for what a GPU computes."""
    from gpu import native_jax, native_programs

    def in_this_process(section, mode, name):
        jobs = getattr(native_programs, mode)(section.work, section.dry)
        wanted = {
            "compare": ("DEFAULT 16x32x64", "flax backward"),
            "identify": ("DEFAULT float32",),
        }
        for program, job in (job for job in jobs if job[0] in wanted[mode]):
            section.note(flags=name, program=program, **job())

    monkeypatch.setattr(native_jax, "answers", in_this_process)
    monkeypatch.setattr(native_programs, "MODES", {None: "as its precision says"})
    outcome, rows = ask(native_jax.compare, tmp_path)
    assert outcome.ok
    assert [row["program"] for row in rows] == ["DEFAULT 16x32x64", "flax backward"]
    assert outcome.text == "cublas: 2 of 2 explained"
    assert (tmp_path / "flax_backward.hlo.txt").read_text()
    outcome, rows = ask(native_jax.identify, tmp_path)
    assert {row["verdict"] for row in rows} == {"identified"}
    assert "blocks of 32, 13 bits truncate, result 13 bits" in outcome.text


def test_native_jax_in_its_processes(tmp_path, monkeypatch):
    """Every combination of flags has a process; XLA takes no flags that are blank."""
    from gpu import native_jax
    from gpu.section import Section

    program = """import json, os; flags = os.environ['XLA_FLAGS']
print(json.dumps({'program': 'x', 'explained': [flags], 'blank': flags != flags.strip()}))"""
    monkeypatch.setattr(native_jax, "_PROGRAM", program)
    monkeypatch.setenv("XLA_FLAGS", "")
    section = Section("any", tmp_path, False, 600)
    assert native_jax.compare(section).ok
    assert {row["flags"] for row in section.rows} == set(native_jax.FLAGS)
    assert not any(row["blank"] for row in section.rows)
    monkeypatch.setattr(native_jax, "_PROGRAM", "import time; time.sleep(60)")
    section = Section("any", tmp_path, True, -4)
    outcome = native_jax.compare(section)
    assert "its time was over" in outcome.text


def test_native_jax_that_dies(tmp_path, monkeypatch):
    from gpu import native_jax

    program = """print('{"program": "x"}'); raise SystemExit(3)"""
    monkeypatch.setattr(native_jax, "_PROGRAM", program)
    outcome, rows = ask(native_jax.compare, tmp_path)
    assert not outcome.ok
    assert rows[0]["program"] == "x"
    assert "died with exit status 3" in outcome.text
