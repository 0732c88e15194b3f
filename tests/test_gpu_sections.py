"""The sections of tools/gpu_check.py, with stand-ins for a GPU that are right or wrong."""

import itertools
import json
import pathlib
import sys

import cuda_fakes
import fake_torch
import pytest

ROOT = pathlib.Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def tools_on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))


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
