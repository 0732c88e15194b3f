"""Split decisions of drawn GEMMs: one answer, whoever asks, and the call that it describes."""


import jax
import numpy as np
import pytest
import strategies as draw
from hypothesis import given
from hypothesis import strategies as st

import mmaemu_jax as mj
from mmaemu_jax.errors import (
    MmaemuError,
    SplitKUnknownError,
    UnsupportedFeatureError,
    UnvalidatedEnvelopeWarning,
    UnverifiedSplitWarning,
)
from mmaemu_jax.testing import assert_bitwise_equal, operands

pytestmark = pytest.mark.filterwarnings("ignore::mmaemu_jax.errors.MmaemuWarning")

#: Small dimensions at which cuBLAS is known to split, and others.
rows = st.sampled_from((1, 2, 16, 17, 48, 64, 256, 4096)) | st.integers(1, 5000)
columns = st.sampled_from((16, 48, 64, 512, 1024, 2048)) | st.integers(1, 300).map(lambda n: 16 * n)
depths = st.sampled_from((16, 1024, 2048, 4096, 8192, 16384)) | st.integers(1, 1100).map(
    lambda k: 16 * k
)
shapes = st.tuples(rows, columns, depths)
profiles = st.sampled_from(mj.list_profiles())


ABOUT_SPLITS = (UnverifiedSplitWarning, UnvalidatedEnvelopeWarning)


@st.composite
def formats(draw_from) -> dict:
    fmt_a, fmt_b = draw_from(draw.format_pairs)
    return {
        "a_dtype": fmt_a.dtype,
        "b_dtype": fmt_b.dtype,
        "out_dtype": draw_from(draw.output_dtypes),
        "use_fast_accum": draw_from(st.booleans()),
    }


def resolved(shape, formats: dict, profile, splitk):
    """The decision, or the class of the refusal."""
    try:
        return mj.resolve_splitk(*shape, **formats, profile=profile, splitk=splitk)
    except MmaemuError as error:
        return type(error)


@given(shapes, formats(), profiles, st.sampled_from(("auto", "table", "auto_or_unsplit")))
def test_explain_tells_what_resolve_splitk_tells(shape, formats, profile, splitk):
    decision = resolved(shape, formats, profile, splitk)
    assert resolved(shape, formats, profile, splitk) == decision
    m, n, k = shape
    a = jax.ShapeDtypeStruct((m, k), formats["a_dtype"])
    b = jax.ShapeDtypeStruct((k, n), formats["b_dtype"])
    options = {"out_dtype": formats["out_dtype"], "use_fast_accum": formats["use_fast_accum"]}
    plan = mj.explain(a, b, 1.0, 1.0, **options, profile=profile, splitk=splitk)
    if plan.error is None:
        assert plan.decision == decision
        assert plan.accumulation.splits == decision.S
        doubts = [n for n in plan.notices if n.category in ABOUT_SPLITS]
        assert decision.verified == (not doubts)
    elif isinstance(plan.error, SplitKUnknownError):
        assert decision is SplitKUnknownError


@given(shapes, formats(), profiles)
def test_a_mode_that_knows_more_contradicts_nothing(shape, formats, profile):
    by_table, auto, unsplit = (
        resolved(shape, formats, profile, mode) for mode in ("table", "auto", "auto_or_unsplit")
    )
    if by_table is not SplitKUnknownError:
        assert auto == by_table
    if auto is not SplitKUnknownError:
        assert unsplit == auto
    else:
        assert (unsplit.S, unsplit.source, unsplit.verified) == (1, "assumed", False)


@given(
    columns,
    depths,
    st.lists(rows, min_size=1, max_size=12),
    formats(),
    profiles,
)
def test_runs_of_a_sweep_are_the_decisions(n, k, sweep, formats, profile):
    report = mj.batch_invariance(n, k, M=sweep, **formats, profile=profile)
    decisions = {m: resolved((m, n, k), formats, profile, "auto") for m in sweep}
    known = {m: d for m, d in decisions.items() if d is not SplitKUnknownError}
    for m, decision in decisions.items():
        run = report.run_of(m)
        split = (run.S, run.scheme, run.source, run.first <= m <= run.last)
        if m in known:
            assert split == (decision.S, decision.scheme, decision.source, True)
        else:
            assert split == (None, "", "unknown", True)
    assert sum(run.count for run in report.runs) == len(decisions)
    assert report.unknown == len(decisions) - len(known)
    splits = {(d.S, d.scheme) for d in known.values()}
    assert report.is_invariant == (len(splits) == 1 and not report.unknown)
    assert str(report)


@draw.share(0.5)
@given(st.sampled_from((1024, 4096, 8192)), formats(), st.sampled_from(("hopper", "ada")), st.data())
def test_a_row_has_the_bits_of_its_run(k, formats, profile, data):
    """Equal splits of two M, equal bits of the row they share, by the call itself."""
    n, sweep = 64, [1, 16, 17, 48, 64, 128, 256]
    options = {"out_dtype_for_split": formats["out_dtype"], "profile": profile}
    options["use_fast_accum"] = formats["use_fast_accum"]
    a, b = operands(
        "randn", *(np.dtype(formats[x]).name for x in ("a_dtype", "b_dtype")), max(sweep), n, k, 1
    )
    a, b = a.view(formats["a_dtype"]), b.view(formats["b_dtype"])
    report = mj.batch_invariance(n, k, M=sweep, **formats, profile=profile)
    m = data.draw(st.sampled_from(sweep))
    run = report.run_of(m)
    splitk = (1, "none") if run.S is None else (run.S, run.scheme)
    alone = mj.host.accumulate(a[:1], b, **options, splitk=splitk)
    if run.S is None:
        with pytest.raises(SplitKUnknownError):
            mj.host.accumulate(a[:m], b, **options)
        return
    assert_bitwise_equal(mj.host.accumulate(a[:m], b, **options)[:1], alone)
