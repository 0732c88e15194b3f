"""Replays every case of every recorded set, bit for bit, through the public API inside jit.

The kernels replay the GEMM sets as recorded; the reference computes the same calls in groups
(tests/replay.py says why that is the same computation): the small sets in every run, the large ones
if asked for exhaustive tests.
"""

import concurrent.futures
import os

import jax
import numpy as np
import pytest
import recordings
import replay
from recordings import CallCase, CallOutput, GemmCase, GemmOutput
from recordings_census import Tally

import mmaemu_jax as mj
from mmaemu_jax.data import load_evo2_projections
from mmaemu_jax.testing import assert_bitwise_equal

BACKENDS = ("auto", "reference")

pytestmark = [
    # The toolbox's B200 vectors are of an experimental preset.
    pytest.mark.filterwarnings("ignore::mmaemu_jax.errors.ExperimentalPresetWarning"),
    # The oracle has contiguous splits that own no tile, which warn (R13).
    pytest.mark.filterwarnings("ignore::mmaemu_jax.errors.UnverifiedSplitWarning"),
]


@pytest.fixture
def tally(record_property):
    """Collects what one test replayed; its numbers go to the census, its failures raise."""
    return Tally(record_property)


def in_parallel(function, items) -> list:
    """``function`` of every item; compiling, which takes the time, releases the GIL."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, items))


@pytest.mark.parametrize("name", recordings.CASES)
def test_every_case_is_there(name):
    assert len(load(name)) == recordings.CASES[name]


def test_a_changed_file_is_noticed(tmp_path, monkeypatch):
    for file in ("manifest.json", "rtx4060_epilogue.npz"):
        data = bytearray((recordings.VECTORS / file).read_bytes())
        data[-1] ^= file.endswith(".npz")
        (tmp_path / file).write_bytes(data)
    monkeypatch.setattr(recordings, "VECTORS", tmp_path)
    with pytest.raises(ValueError, match=r"rtx4060_epilogue\.npz is not the file"):
        recordings.read_set("rtx4060_epilogue")


def test_the_demo_has_the_recorded_projections():
    cases = [case for case in load("rtx4060_gemm") if case.id.startswith("evo2.")]
    projections = load_evo2_projections()
    assert [p.name for p in projections] == [case.id.rpartition("/")[2] for case in cases]
    for projection, case in zip(projections, cases, strict=True):
        assert_bitwise_equal((projection.a, projection.b), (case.a, case.b))
        recorded = {(o.out_dtype, o.scale_a, o.scale_b, o.fast): o.bits for o in case.outputs}
        assert len(projection.outputs) == len(recorded)
        for o in projection.outputs:
            options = (o.out_dtype, o.scale_a, o.scale_b, o.use_fast_accum)
            assert_bitwise_equal(o.bits, recorded[options])


def load(name: str) -> list:
    if name in recordings.INSTRUCTION_SETS:
        return recordings.instruction_cases(name)
    return recordings.gemm_cases(name) if name in recordings.GEMM_SETS else recordings.call_cases()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", recordings.INSTRUCTION_SETS)
def test_instructions(name, backend, tally):
    tally.start(name, backend)
    groups = replay.dot_groups(recordings.instruction_cases(name))
    results = in_parallel(lambda group: replay.run_dots(group, backend), groups)
    for group, values in zip(groups, results, strict=True):
        for case, value in zip(group, values, strict=True):
            tally.compare(case.id, value, case.d)
    tally.finish(recordings.CASES[name])


@pytest.mark.parametrize("name", recordings.GEMM_SETS)
def test_gemms_as_recorded(name, tally):
    tally.start(name, "auto")
    cases = recordings.gemm_cases(name)
    check_rejections(cases, "auto", tally)
    cases = [case for case in cases if case.a is not None]
    results = in_parallel(lambda case: replay.as_recorded(case, "auto"), cases)
    for case, values in zip(cases, results, strict=True):
        outputs = [output for output in case.outputs if output.bits is not None]
        for output, value in zip(outputs, values, strict=True):
            tally.compare(case.id, value, output.bits)
    tally.finish(recordings.CASES[name])


# Compiling the reference for the shapes of the two large sets takes minutes: on request.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("rtx4060_gemm", marks=pytest.mark.exhaustive),
        "rtx4060_epilogue",
        pytest.param("h100_oracle", marks=pytest.mark.exhaustive),
    ],
)
def test_gemms_in_groups_by_the_reference(name, tally):
    tally.start(name, "reference")
    cases = recordings.gemm_cases(name)
    check_rejections(cases, "reference", tally)
    programs = replay.plan_programs(accepted_calls(cases))
    check_programs(replay.covering(programs) if name == "h100_oracle" else programs, tally)
    tally.finish(recordings.CASES[name])


@pytest.mark.exhaustive
def test_the_whole_oracle_by_the_reference(tally):
    tally.start("h100_oracle (all)", "reference")
    check_programs(replay.plan_programs(accepted_calls(load("h100_oracle"))), tally)
    tally.finish(recordings.CASES["h100_oracle"])


def accepted_calls(cases: list[GemmCase]) -> list[replay.Call]:
    return [(case, o) for case in cases for o in case.outputs if o.bits is not None]


def check_programs(programs: list[replay.Program], tally: Tally) -> None:
    results = in_parallel(lambda program: program.run("reference"), programs)
    for program, values in zip(programs, results, strict=True):
        for (case, output), value in zip(program.calls, values, strict=True):
            tally.compare(case.id, value, output.bits)


def check_rejections(cases: list[GemmCase], backend: str, tally: Tally) -> None:
    for case in cases:
        for output in case.outputs:
            if output.rejected_shape is not None:
                error = error_of(lambda c=case, o=output: replay.reject(c, o, backend))
                tally.rejection(case.id, error, "ReferenceRejectsError")


def error_of(call) -> str | None:
    """Name of the error that ``call`` raises."""
    try:
        call()
    except (mj.errors.MmaemuError, TypeError, ValueError) as error:
        return type(error).__name__
    return None


@pytest.fixture
def plain_tracebacks():
    """Thousands of errors are caught here, and filtering each traceback is most of the time."""
    before = jax.config.jax_traceback_filtering  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_traceback_filtering", "off")
    yield
    jax.config.update("jax_traceback_filtering", before)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.usefixtures("plain_tracebacks")
def test_argument_grid(backend, tally):
    tally.start("rtx4060_call", backend)
    computed: list[GemmCase] = []
    for case in recordings.call_cases():
        for output in case.outputs:
            if output.error is not None:
                error = error_of(lambda c=case, o=output: run_call(c, o, backend))
                tally.rejection(case.id, error, output.error)
            elif backend == "auto" or 0 in (*case.a.shape, *case.b.shape):
                tally.compare(case.id, run_call(case, output, backend), output.bits)
            else:
                computed.append(as_gemm(case, output))
    check_programs(replay.plan_programs(accepted_calls(computed)), tally)
    tally.finish(recordings.CASES["rtx4060_call"])


def run_call(case: CallCase, output: CallOutput, backend: str) -> jax.Array:
    """The call with its arguments as recorded, jitted."""
    named = {"scale_a": case.scale_a, "scale_b": case.scale_b, "scale_result": output.scale_result}
    scales = {name: value for name, value in named.items() if value is not None}
    # jit would narrow a float64 argument before scaled_mm could reject it: such are constants.
    constant = {name: value for name, value in scales.items() if value.dtype == np.float64}
    traced = {name: value for name, value in scales.items() if name not in constant}

    def call(a, b, traced):
        return mj.scaled_mm(
            a,
            b.T,
            **traced,
            **constant,
            out_dtype=output.out_dtype,
            use_fast_accum=output.fast,
            profile="ada",
            splitk=output.split,
            backend=backend,
        )

    return jax.jit(call)(case.a, case.b, traced)


def as_gemm(case: CallCase, output: CallOutput) -> GemmCase:
    """An accepted call with its one-element scales as scalars."""

    def scalar(scale: np.ndarray) -> np.float32:
        return np.float32(scale.item())

    scale_result = output.scale_result
    gemm_output = GemmOutput(
        out_dtype=output.out_dtype,
        fast=output.fast,
        split=output.split,
        scale_a=scalar(case.scale_a),
        scale_b=scalar(case.scale_b),
        scale_result=None if scale_result is None else scalar(scale_result),
        bits=output.bits,
        rejected_shape=None,
    )
    return GemmCase(case.id, "ada", case.a.dtype, case.b.dtype, case.a, case.b, (gemm_output,))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_wrong_expectation_fails(backend):
    """One flipped bit in what was recorded, or an error that does not come, is noticed."""
    tally = Tally(lambda *_: None)
    tally.start("deliberately wrong", backend)
    case = recordings.gemm_cases("rtx4060_epilogue")[0]
    (program, *_) = replay.plan_programs(accepted_calls([case]))
    (value, *_), (_, output) = program.run(backend), program.calls[0]
    flipped = replay.accepted(output).copy()
    flipped.view(np.uint8)[-1, -1] ^= 1
    tally.compare(case.id, value, output.bits)
    assert_bitwise_equal(value, output.bits)
    tally.compare("flipped", value, flipped)
    tally.rejection("accepted", error_of(lambda: None), "ReferenceRejectsError")
    with pytest.raises(AssertionError, match=r"2 of 3 .*\n.*flipped: .* 1 of 1024 (.|\n)*accepted"):
        tally.finish(2)
