"""Which M change the bits of a row."""

import dataclasses
import inspect
import json
import sys

import jax
import jax.export
import numpy as np
import pytest

import mmaemu_jax as mj
from mmaemu_jax import BatchInvarianceReport
from mmaemu_jax.formats import E4M3

MRun = sys.modules["mmaemu_jax.batch_invariance"].MRun  # the name is the function's

GEMM = {"a_dtype": "e4m3", "b_dtype": "e4m3", "out_dtype": "bfloat16", "use_fast_accum": True}


def test_runs_are_the_decisions():
    report = mj.batch_invariance(2048, 8192, M=range(1, 100), **GEMM)
    assert not report.is_invariant
    assert sum(run.count for run in report.runs) == 99
    for m in range(1, 100):
        decision = mj.resolve_splitk(m, 2048, 8192, **GEMM)
        run = report.run_of(m)
        assert (run.S, run.scheme, run.source) == (decision.S, decision.scheme, decision.source)
    for one, other in zip(report.runs, report.runs[1:], strict=False):
        assert (one.S, one.scheme, one.source) != (other.S, other.scheme, other.source)
        assert one.last + 1 == other.first
    assert report.run_of(100) is None
    assert "NOT batch-invariant: 2 different splits." in str(report)
    assert json.loads(json.dumps(report.to_dict()))["runs"][0]["S"] == 2


def test_sources_are_told_apart_but_not_in_print():
    report = mj.batch_invariance(2048, 8192, M=range(900, 1100), **GEMM)
    assert {run.source for run in report.runs} == {"table", "envelope"}
    assert len(report.runs) > len(report.splits) == 1
    assert report.is_invariant
    assert "S = 1 (none)           table and envelope" in str(report)
    assert "Batch-invariant:" in str(report)


def test_unknown_M_are_listed():
    report = mj.batch_invariance(24, 8200, M=[1, 2, 1 << 30], **GEMM)
    assert [(run.S, run.source, run.count) for run in report.runs] == [
        (None, "unknown", 2),
        (1, "envelope", 1),
    ]
    assert report.unknown == 2
    assert "Not known to be batch-invariant. 2 M have no known split." in str(report)


def test_splits_of_transformer_engine_are_marked_and_do_not_warn():
    report = mj.batch_invariance(2048, 8192, M=range(16, 64, 16), **GEMM, profile="hopper-te")
    assert not report.runs[0].verified
    assert "(not verified)" in str(report)


def test_an_explicit_split_is_invariant_and_an_empty_sweep_too():
    assert mj.batch_invariance(24, 8200, **GEMM, splitk=1).is_invariant
    assert mj.batch_invariance(24, 8200, **GEMM, M=[]).runs == ()
    assert "Batch-invariant" in str(mj.batch_invariance(24, 8200, **GEMM, M=[]))


def test_the_plot_shows_every_run(tmp_path):
    report = mj.batch_invariance(1024, 16384, M=range(16, 300, 16), **GEMM, profile="ada")
    figure = report.plot(tmp_path / "sweep.svg")
    (ax,) = figure.axes
    marked = {
        (x, y)
        for line in ax.lines
        for x, y in zip(*(v.tolist() for v in line.get_data()), strict=True)
    }
    known = [run for run in report.splits if run.S is not None]
    assert len(known) > 3
    assert marked == {(m, run.S) for run in known for m in (run.first, run.last)}
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["pairwise", "serial", "unknown", "not split"]
    assert (tmp_path / "sweep.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize("first", [0, 1, 48])
def test_the_plot_starts_at_the_first_M_that_can_be_drawn(first):
    report = mj.batch_invariance(2048, 8192, M=range(first, 100), **GEMM)
    (ax,) = report.plot().axes
    lowest = max(first, 1)
    drawn = [x for lines in ax.collections for path in lines.get_paths() for x, _ in path.vertices]
    assert min(drawn) == lowest
    assert max(drawn) == 99.5
    assert lowest / 2 < ax.get_xlim()[0] < lowest
    assert ax.xaxis.get_major_formatter()(32.0) == "32"


def test_rows_of_one_run_have_equal_bits():
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 120, (n, 8192), np.uint8) for n in (48, 16))
    a, b = (x.view(E4M3.dtype) for x in (a, b))

    def row(m):
        return mj.accumulate(a[:m], b, use_fast_accum=True, profile="ada", splitk=(2, "serial"))[0]

    mj.testing.assert_bitwise_equal(row(1), row(48))


def test_symbolic_dimensions():
    (m,) = jax.export.symbolic_shape("m")
    with pytest.raises(TypeError, match=r"^batch_invariance: M must not be symbolic, got \[m\]"):
        mj.batch_invariance(16, 16, **GEMM, M=[m])


@pytest.mark.parametrize(
    ("changes", "error"),
    [({"M": [-1]}, ValueError), ({"M": [1.0]}, TypeError), ({"profile": "nope"}, ValueError)],
)
def test_wrong_arguments(changes, error):
    with pytest.raises(error, match=r"^batch_invariance: "):
        mj.batch_invariance(16, 16, **{**GEMM, **changes})


def made_up_report() -> BatchInvarianceReport:
    """One run of each kind, neighbours that differ only in their source among them."""
    runs = (
        MRun(1, 5, 5, 1, "none", "table", True),
        MRun(6, 9, 4, 1, "none", "envelope", False),
        MRun(10, 10, 1, 2, "contiguous", "table", True),
        MRun(11, 12, 2, None, "", "unknown", False),
    )
    return BatchInvarianceReport(16, 32, "e4m3", "e5m2", "float32", False, "hopper", runs)


def test_the_table_for_people():
    report = made_up_report()
    assert report.splits[0] == MRun(1, 9, 9, 1, "none", "table and envelope", False)
    assert str(report).splitlines() == [
        "N=16 K=32 e4m3 x e5m2 -> float32, slow accumulation, profile 'hopper'",
        "M        count  split                  source",
        "1..9         9  S = 1 (none)           table and envelope (not verified)",
        "10           1  S = 2 (contiguous)     table",
        "11..12       2  unknown                unknown",
        "NOT batch-invariant: 2 different splits. 2 M have no known split.",
    ]
    fast = dataclasses.replace(report, use_fast_accum=True, runs=report.runs[:3])
    assert ", fast accumulation" in str(fast)
    assert str(fast).endswith("NOT batch-invariant: 2 different splits.")


def test_a_run_is_verified_if_every_decision_is():
    module = sys.modules["mmaemu_jax.batch_invariance"]
    decisions = [mj.SplitDecision(1, "none", "table", verified) for verified in (True, False)]
    assert not module._run(list(enumerate(decisions))).verified
    assert module._run([(3, decisions[0])]) == MRun(3, 3, 1, 1, "none", "table", True)


def test_defaults():
    assert inspect.signature(mj.batch_invariance).parameters["M"].default == range(1, 4097)
    options = {**GEMM, "splitk": 1, "M": [16]}
    assert mj.batch_invariance(16, 16, **options).out_dtype == "bfloat16"
    report = mj.batch_invariance(16, 16, **{**options, "out_dtype": None, "a_dtype": "e5m2"})
    assert report.out_dtype == "float8_e5m2"
