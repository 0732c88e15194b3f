"""``bench``, ``gemm_cost`` and ``profiling``: what they report, never how fast it was."""

import json
import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mmaemu_jax as mj
from mmaemu_jax import cli, profiling
from mmaemu_jax.accumulate import SplitK
from mmaemu_jax.bench import case, driver, memory, peer, program, table, timing
from mmaemu_jax.gemm_cost import GemmCost, gemm_cost

TINY = ["--shape", "32x16x64", "--repeat", "1"]


def make_row(**changes) -> dict:
    """A row as the measuring process reports it."""
    (one,) = case.make_cases(shapes=[(32, 16, 64)], modes=["fast,4"])
    return {
        "case": one.to_dict(),
        "backend": "cpu:x",
        "threads": 1,
        "repeats": 3,
        "seconds": 2e-3,
        "dot_seconds": 1e-3,
        "gmacs": 1.0,
        "dot_gmacs": 2.0,
        "ratio": 0.5,
        "extra_bytes": 1 << 20,
        "check": {"backend": "cpu:scalar", "rows": 8, "equal": True, "difference": ""},
        "peer": None,
        "trace": None,
        **changes,
    }


# The command


def test_bench_as_json_with_a_trace(capsys, tmp_path):
    argv = ["bench", *TINY, "--mode", "slow,2", "--json", "--trace", str(tmp_path)]
    assert cli.main(argv) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["versions"]["jax"] == jax.__version__
    (row,) = report["rows"]
    assert set(row) == set(make_row())
    assert case.BenchCase.from_dict(row["case"]).mode == case.Mode(False, SplitK(2, "contiguous"))
    assert row["check"]["equal"]
    assert row["check"]["rows"] == 8
    assert row["backend"].startswith("cpu:")
    (gemm,) = row["trace"]
    assert gemm["name"].startswith("mmaemu_scaled_mm")
    assert gemm["calls"] == 3
    assert case.BenchCase.from_dict(row["case"]).label in gemm["op_name"]
    (entry,) = report["overhead"]
    assert entry["shape"] == [16, 16, 32]
    assert list(tmp_path.rglob("bench_step.hlo.txt"))


def test_bench_prints_a_table(capsys, monkeypatch):
    def measure(cases, *, on_start, on_row, **options):
        on_start(1, 1, "label")
        on_row(make_row())
        return {"rows": [make_row()], "overhead": []}

    monkeypatch.setattr(driver, "measure", measure)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert cli.main(["bench", *TINY]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("M x N x K")
    assert "fast S=4 contiguous" in out
    assert "equal to cpu:scalar on 8 rows" in out
    assert "[1/1] label" in err


@pytest.mark.parametrize(
    "change",
    [
        {"check": {"backend": "b", "rows": 1, "equal": False, "difference": "the difference"}},
        {"peer": {"gmacs": 1.0, "rows": 16, "equal": False, "difference": "the difference"}},
    ],
)
def test_different_bits_exit_with_1(change, capsys, monkeypatch):
    report = {"rows": [make_row(**change)], "overhead": []}
    monkeypatch.setattr(driver, "measure", lambda *_, **__: report)
    assert cli.main(["bench", *TINY]) == 1
    assert "the difference" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--backend", "cpu:no_such"], "cpu:no_such"),
        (["--backend", "cuda"], "cuda"),
        (["--formats", "e5m2xe5m2"], "E5M2"),
        (["--shape", "32x24x64"], "16"),
        (["--mode", "quick"], "--mode"),
        (["--mode", "fast,1"], "--mode"),
        (["--mode", "fast,4,serial"], "contiguous"),
        (["--threads", "100000"], "--threads"),
    ],
)
def test_bench_refuses(argv, text, capsys):
    assert cli.main(["bench", *TINY, *argv]) == 2
    assert text.lower() in capsys.readouterr().err.lower()


@pytest.mark.parametrize(
    "argv",
    [["--shape", "1x2"], ["--shape", "0x16x16"], ["--formats", "bf16xe4m3"], ["--repeat", "0"],
     ["--profile", "nope"], ["--out", "nope"]],
)  # fmt: skip
def test_bench_usage(argv, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["bench", *argv])
    assert stopped.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_a_missing_peer_says_how_to_install_it(capsys, monkeypatch):
    monkeypatch.setattr(peer.importlib.util, "find_spec", lambda name: None)
    assert cli.main(["bench", *TINY, "--vs-peer"]) == 2
    assert "pip install mmaemu torch" in capsys.readouterr().err


def test_a_failed_process_shows_its_errors(monkeypatch):
    monkeypatch.setattr(driver, "_PROGRAM", "raise SystemExit('broken {cpus}')")
    with pytest.raises(RuntimeError, match="broken None"):
        driver.measure(case.make_cases(shapes=[(32, 16, 64)]), threads=[None])


# Its parts


def test_default_cases_cover_presets_modes_and_formats():
    cases = case.make_cases(shapes=case.DEFAULT_SHAPES)
    assert {c.profile for c in cases} == {"hopper", "ada"}
    assert {c.mode.split.S for c in cases} == {1, 4}
    assert {c.formats for c in cases} == {("e4m3", "e4m3"), ("e4m3", "e5m2")}
    assert len({c.label for c in cases}) == len(cases)
    for one in cases:
        assert case.BenchCase.from_dict(json.loads(json.dumps(one.to_dict()))) == one


def test_the_check_finds_a_wrong_bit():
    (one,) = case.make_cases(shapes=[(16, 16, 32)], modes=["slow"], backends=["cpu:scalar"])
    a, w = program.operands(one)
    result = np.array(program.emulated(one)(a, w))
    assert program.check(one, a, w, result)["equal"]
    assert program.check(one, a, w, result)["backend"] == "reference"
    result.view(np.uint16)[0, 3] ^= 1
    found = program.check(one, a, w, result)
    assert not found["equal"]
    assert found["difference"]


def test_both_layouts_of_the_weights_give_the_same_bits():
    results = []
    for layout in ("nk", "kn"):
        (one,) = case.make_cases(shapes=[(16, 32, 64)], modes=["fast"], weights=layout)
        a, w = program.operands(one)
        results.append(program.emulated(one)(a, program.stored_weights(one, w)))
        assert program.float32_dot(one)(
            a.astype(np.float32), program.stored_weights(one, w).astype(np.float32)
        ).shape == (16, 32)
    mj.testing.assert_bitwise_equal(*results)


def test_interleaved_measures_in_turn():
    calls = []
    times = timing.interleaved(lambda: calls.append("dot"), lambda: calls.append("ours"), 2)
    assert calls == ["dot", "ours"] * 2
    assert [len(t) for t in times] == [2, 2]


def test_extra_bytes_sees_memory_that_is_freed_again(monkeypatch):
    def call():
        scratch = np.ones(4 << 20, np.uint8)
        return scratch[:16].copy()

    result, extra = memory.extra_bytes(call)
    assert result.nbytes == 16
    assert extra is None or extra > 2 << 20
    monkeypatch.setattr(memory.sys, "platform", "other")
    assert memory.extra_bytes(call)[1] is None


def test_notes_of_peer_and_trace():
    found = {"gmacs": 0.25, "rows": 16, "equal": True, "difference": ""}
    gemm = {"name": "mmaemu_scaled_mm.1", "op_name": "jit(f)/layer0/mmaemu_scaled_mm", "calls": 3,
            "mean_seconds": 2e-3, "best_seconds": 1e-3}  # fmt: skip
    rows = [
        make_row(peer=found, trace=[gemm]),
        make_row(peer={"refused": "no"}, trace=[], extra_bytes=None),
    ]
    text = "\n".join(table.notes({"rows": rows, "overhead": []}))
    for part in ("ours 4 times that; equal bits", ": no", "jit(f)/layer0", "no row"):
        assert part in text
    assert "?" in table.row_line(rows[1])


# profiling


def test_gemm_times_of_a_program_with_two_named_layers(tmp_path):
    @jax.jit
    def step(x, w):
        with jax.named_scope("up"):
            y = mj.scaled_mm(x, w.T, 1.0, 1.0, use_fast_accum=True, splitk=1)
        with jax.named_scope("down"):
            return mj.scaled_mm(y, w, 1.0, 1.0, use_fast_accum=True, splitk=1)

    x, w = (jnp.ones(shape, jnp.float8_e4m3fn) for shape in ((16, 32), (64, 32)))
    compiled = step.lower(x, w).compile()
    with jax.profiler.trace(tmp_path):
        for _ in range(2):
            compiled(x, w).block_until_ready()
    rows = profiling.gemm_times(tmp_path, [compiled])
    assert {r.op_name for r in rows} == {
        f"jit(step)/{layer}/mmaemu_scaled_mm" for layer in ("up", "down")
    }
    for row in rows:
        assert row.module == "jit_step"
        assert row.calls == 2
        assert 0 < row.best_ns <= row.mean_ns <= row.total_ns
    assert profiling.gemm_times(tmp_path, compiled.as_text()) == rows
    assert {r.op_name for r in profiling.gemm_times(str(tmp_path))} == {""}


def test_gemm_times_refuses(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"jax\.profiler\.trace"):
        profiling.gemm_times(tmp_path)
    with pytest.raises(ValueError, match="HLO"):
        profiling.gemm_times(tmp_path, ["no module"])


# gemm_cost


def test_gemm_cost():
    found = gemm_cost(2, 3, 5, a_dtype="e4m3", b_dtype=jnp.float8_e5m2, out_dtype="bfloat16")
    assert found == GemmCost(flops=60, macs=30, bytes=10 + 15 + 12)
    found = gemm_cost(2, 3, 5, a_dtype="e4m3", b_dtype="e4m3", out_dtype="e4m3", batch=4)
    assert found == GemmCost(240, 120, 4 * (10 + 15 + 6))
    assert gemm_cost(0, 3, 5, a_dtype="e4m3", b_dtype="e4m3", out_dtype="float32").macs == 0


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"m": 2.0}, TypeError),
        ({"k": True}, TypeError),
        ({"batch": -1}, ValueError),
        ({"a_dtype": "bfloat16"}, TypeError),
        ({"out_dtype": "float64"}, ValueError),
    ],
)
def test_gemm_cost_refuses(change, error):
    arguments = {"m": 1, "n": 1, "k": 1, "a_dtype": "e4m3", "b_dtype": "e4m3"}
    with pytest.raises(error, match="gemm_cost"):
        gemm_cost(**{**arguments, "out_dtype": "float32", **change})


@pytest.mark.skipif(not driver.can_pin(), reason="this system cannot pin a process")
def test_a_process_is_pinned_before_it_starts(monkeypatch):
    usable = sorted(os.sched_getaffinity(0))
    code = driver._PROGRAM.replace(
        "from mmaemu_jax.bench.worker import main", "import json"
    ).replace("main()", "print(json.dumps(sorted(os.sched_getaffinity(0))))")
    monkeypatch.setattr(driver, "_PROGRAM", code)
    assert driver._answer({}, {usable[-1]}) == [usable[-1]]
