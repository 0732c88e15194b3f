"""Split decisions of drawn GEMMs: one answer, whoever asks, and the call that it describes."""

import functools

import jax
import pytest
import strategies as draw
from hypothesis import example, given
from hypothesis import strategies as st
from test_split_table import KEY, sample_rows

import mmaemu_jax as mj
from mmaemu_jax.arguments import format_argument
from mmaemu_jax.errors import (
    MmaemuError,
    SplitKUnknownError,
    UnvalidatedEnvelopeWarning,
    UnverifiedSplitWarning,
)
from mmaemu_jax.testing import assert_bitwise_equal, operands

pytestmark = pytest.mark.filterwarnings("ignore::mmaemu_jax.errors.MmaemuWarning")

#: A GEMM and who multiplies: shape, formats and options, and a profile.
rows = st.sampled_from((1, 2, 16, 17, 48, 64, 256, 4096)) | st.integers(1, 5000)
columns = st.sampled_from((16, 48, 64, 512, 1024, 2048)) | st.integers(1, 300).map(lambda n: 16 * n)
depths = st.sampled_from((16, 1024, 2048, 4096, 8192, 16384)) | st.integers(1, 1100).map(
    lambda k: 16 * k
)
profiles = st.sampled_from(mj.list_profiles())
ABOUT_SPLITS = (UnverifiedSplitWarning, UnvalidatedEnvelopeWarning)
LARGEST = 1 << 25


@st.composite
def formats(draw_from) -> dict:
    fmt_a, fmt_b = draw_from(draw.format_pairs)
    return options(fmt_a, fmt_b, draw_from(draw.output_dtypes), draw_from(st.booleans()))


def options(format_a, format_b, out_dtype, use_fast_accum) -> dict:
    dtypes = {"a_dtype": format_a, "b_dtype": format_b, "out_dtype": out_dtype}
    return {**dtypes, "use_fast_accum": bool(use_fast_accum)}


@functools.cache
def recorded() -> list[tuple]:
    """Recorded GEMMs of less than LARGEST products that are split, by every profile with tables."""
    known = [mj.get_profile(name) for name in mj.list_profiles()]
    found = []
    for table, S, m, n, k, *setting, workspace in sample_rows("table", "splitK", *KEY):
        for profile in known if S > 1 and m * n * k < LARGEST else ():
            if (profile.table_id, profile.workspace_bytes) == (table, workspace):
                found.append(((m, n, k), options(*setting), profile.name))
    return found


#: Drawn late: the sample is read when the first test asks for it.
split_gemms = st.deferred(lambda: st.sampled_from(recorded()))
gemms = split_gemms | st.tuples(st.tuples(rows, columns, depths), formats(), profiles)


def resolved(shape, formats: dict, profile, splitk):
    """The decision, or the class of the refusal."""
    try:
        return mj.resolve_splitk(*shape, **formats, profile=profile, splitk=splitk)
    except MmaemuError as error:
        return type(error)


@given(gemms, st.sampled_from(("auto", "table", "auto_or_unsplit")))
def test_explain_tells_what_resolve_splitk_tells(gemm, splitk):
    shape, formats, profile = gemm
    decision = resolved(shape, formats, profile, splitk)
    assert resolved(shape, formats, profile, splitk) == decision
    m, n, k = shape
    a, b = (
        jax.ShapeDtypeStruct(size, format_argument("test", name, formats[name]).dtype)
        for name, size in (("a_dtype", (m, k)), ("b_dtype", (k, n)))
    )
    options = {"out_dtype": formats["out_dtype"], "use_fast_accum": formats["use_fast_accum"]}
    plan = mj.explain(a, b, 1.0, 1.0, **options, profile=profile, splitk=splitk)
    if plan.error is None:
        assert plan.decision == decision
        assert plan.accumulation.splits == decision.S
        doubts = [n for n in plan.notices if n.category in ABOUT_SPLITS]
        assert decision.verified == (not doubts)
    elif isinstance(plan.error, SplitKUnknownError):
        assert decision is SplitKUnknownError


@given(gemms)
def test_a_mode_that_knows_more_contradicts_nothing(gemm):
    shape, formats, profile = gemm
    by_table, auto, unsplit = (
        resolved(shape, formats, profile, mode) for mode in ("table", "auto", "auto_or_unsplit")
    )
    if by_table is not SplitKUnknownError:
        assert auto == by_table
    if auto is not SplitKUnknownError:
        assert unsplit == auto
    else:
        assert (unsplit.S, unsplit.source, unsplit.verified) == (1, "assumed", False)


@given(gemms, st.lists(rows, max_size=12))
@example(((1, 16, 16), options("e4m3", "e4m3", "float32", False), "hopper-ws0"), [1, 2])
@example(((50, 2048, 8192), options("e4m3", "e4m3", "bfloat16", True), "hopper"), [1, 100])
def test_runs_of_a_sweep_are_the_decisions(gemm, others):
    """Whatever the order of the sweep, and however often it has an M."""
    (m, n, k), formats, profile = gemm
    sweep = [*others, m]
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
@given(split_gemms, draw.seeds)
def test_a_row_has_the_bits_of_its_run(gemm, seed):
    """What is split, by the call itself; the same row alone, split as the report says."""
    (m, n, k), formats, profile = gemm
    pair = [format_argument("test", name, formats[name]) for name in ("a_dtype", "b_dtype")]
    a, b = operands("growing", *pair, m, n, k, seed)
    a, b = (x.view(fmt.dtype) for x, fmt in zip((a, b), pair, strict=True))
    given = {"use_fast_accum": formats["use_fast_accum"], "profile": profile}
    run = mj.batch_invariance(n, k, M=[m], **formats, profile=profile).run_of(m)
    assert run.S > 1
    alone = mj.host.accumulate(a[:1], b, **given, splitk=(run.S, run.scheme))
    y = mj.host.accumulate(a, b, **given, out_dtype_for_split=formats["out_dtype"])
    assert_bitwise_equal(y[:1], alone)
