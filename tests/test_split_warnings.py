"""Where the evidence for a split ends: scale_result, padded keys, and the live query."""

import dataclasses
import warnings
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from api_calls import record_bind, zeros
from jax import export

import mmaemu_jax as mj
from mmaemu_jax.cuda_cublaslt import Algorithm
from mmaemu_jax.errors import (
    ExperimentalPresetWarning,
    SplitKUnknownError,
    UnsupportedFeatureError,
    UnvalidatedEnvelopeWarning,
    UnverifiedSplitWarning,
)
from mmaemu_jax.formats import E4M3
from mmaemu_jax.platforms import SplitQuery, SplitRequest, live_query
from mmaemu_jax.platforms.split_decision import SplitDecision
from mmaemu_jax.platforms.split_setting import Setting

GEMM = {"a_dtype": "e4m3", "b_dtype": "e4m3", "out_dtype": jnp.float32, "use_fast_accum": True}


def warned(function, *args, **options) -> tuple[object, list]:
    """The result of a call, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function(*args, **options)
    assert {w.filename for w in caught} <= {__file__}
    return result, caught


# An FP8 output with a scale_result


def call(monkeypatch, m, n, k, **options) -> list:
    record_bind(monkeypatch)
    good = {"scale_a": 1.0, "scale_b": 1.0, "out_dtype": E4M3.dtype, "use_fast_accum": True}
    arguments = {**good, "scale_result": 1.0, **options}
    return warned(mj.scaled_mm, zeros(m, k), zeros(k, n), **arguments)[1]


def test_scale_result_on_the_h100(monkeypatch):
    (by_table,) = call(monkeypatch, 16, 2048, 2048)
    assert by_table.category is UnverifiedSplitWarning
    assert "source table" in str(by_table.message)
    assert "heur_h100pcie_lt12.8.3.14 was recorded without scale_result" in str(by_table.message)
    (by_envelope,) = call(monkeypatch, 4000, 4000, 2064)
    assert by_envelope.category is UnverifiedSplitWarning
    assert "source envelope" in str(by_envelope.message)
    assert "without scale_result" in str(by_envelope.message)
    (both,) = call(monkeypatch, 4000, 4000, 2064, profile="hopper-te")
    assert both.category is UnvalidatedEnvelopeWarning
    assert "1 of 77518" in str(both.message)
    assert "without scale_result" in str(both.message)


@pytest.mark.parametrize(
    "options",
    [
        {"scale_result": None},
        {"out_dtype": jnp.bfloat16},  # the scale is ignored (R18)
        {"splitk": 1},
        {"profile": "hopper-ws0"},
    ],
)
def test_scale_result_does_not_warn(monkeypatch, options):
    assert call(monkeypatch, 16, 2048, 2048, **options) == []


def test_scale_result_was_recorded_on_the_rtx4060(monkeypatch):
    assert call(monkeypatch, 2048, 2048, 2064, profile="ada") == []


def test_scale_result_of_an_empty_gemm_does_not_warn():
    assert warned(
        mj.scaled_mm, zeros(0, 16), zeros(16, 16), 1.0, 1.0, scale_result=1.0
    )[1] == []  # fmt: skip


# Padded keys


def test_hopper_xla_looks_padded_shapes_up():
    decision, caught = warned(mj.resolve_splitk, 9, 2033, 8177, **GEMM, profile="hopper-xla")
    exact, _ = warned(mj.resolve_splitk, 16, 2048, 8192, **GEMM, profile="hopper-te")
    assert (decision.S, decision.scheme, decision.source) == (exact.S, exact.scheme, "table")
    assert "looked up as M=16 N=2048 K=8192, padded by XLA" in decision.note
    assert exact.S > 1
    assert [w.category for w in caught] == [UnverifiedSplitWarning]
    with pytest.raises(SplitKUnknownError):
        mj.resolve_splitk(9, 2033, 8177, **GEMM, profile="hopper-te")


def test_hopper_xla_infers_for_padded_shapes():
    # 640 x 736 is above the bound 470682 that 627 x 730 is below (and neither is in the table).
    decision, _ = warned(mj.resolve_splitk, 627, 730, 8193, **GEMM, profile="hopper-xla")
    assert (decision.S, decision.source) == (1, "envelope")
    assert "padded" in decision.note
    with pytest.raises(SplitKUnknownError, match=r"M\*N = 457710 is not above the bound 470682"):
        mj.resolve_splitk(627, 730, 8193, **GEMM, profile="hopper-te")


def test_hopper_xla_is_experimental_and_takes_any_shape_in_accumulate():
    a, b = zeros(9, 2033), zeros(2035, 2033)
    acc, caught = warned(mj.accumulate, a, b, use_fast_accum=True, profile="hopper-xla")
    assert acc.shape == (9, 2035)
    assert [w.category for w in caught] == [ExperimentalPresetWarning]
    with pytest.raises(mj.errors.ReferenceRejectsError, match="K must be a multiple of 16"):
        mj.scaled_mm(zeros(9, 2033), zeros(2033, 48), 1.0, 1.0, profile="hopper-xla")


# The live query


HOPPER, THREE = mj.get_profile("hopper"), mj.SplitK(3, "contiguous")


@dataclasses.dataclass
class Provider:
    answer: mj.SplitK | str = THREE
    gpu: str = HOPPER.gpu
    library: str = HOPPER.library

    def split(self, M, N, K, setting):
        self.asked = (M, N, K, *setting)
        return self.answer


def query(profile="hopper", m=40, n=56, k=8200) -> SplitQuery:
    platform = mj.get_profile(profile)
    dtype = np.dtype(np.float32)
    return SplitQuery("test", m, n, k, E4M3, E4M3, dtype, True, platform, SplitRequest("live"))


def test_live_without_a_provider_says_so(monkeypatch):
    why = "live-query: no cuBLASLt can be asked here"
    monkeypatch.setattr(live_query, "find_provider", lambda: why.removeprefix("live-query: "))
    with pytest.raises(SplitKUnknownError, match=why):
        mj.resolve_splitk(40, 56, 8200, **GEMM, splitk="live")
    # The table comes first and needs nobody; an inference says that it is one all the same.
    table = mj.resolve_splitk(16, 2048, 8192, **GEMM, splitk="live")
    assert table == mj.resolve_splitk(16, 2048, 8192, **GEMM)
    inferred = mj.resolve_splitk(4000, 4000, 2064, **GEMM, splitk="live")
    assert (inferred.S, inferred.source) == (1, "envelope")
    assert why in inferred.note
    assert why not in mj.resolve_splitk(4000, 4000, 2064, **GEMM).note


def test_a_provider_is_asked_before_anything_is_inferred(monkeypatch):
    provider = Provider()
    monkeypatch.setattr(live_query, "find_provider", lambda: provider)
    options = {**GEMM, "splitk": "live"}
    decision = mj.resolve_splitk(4000, 4000, 2064, **options)
    assert (decision.S, decision.scheme, decision.source) == (3, "contiguous", "live-query")
    assert provider.asked == (4000, 4000, 2064, "e4m3", "e4m3", "float32", True, 1 << 20)
    assert mj.resolve_splitk(16, 2048, 8192, **options).source == "table"
    assert mj.resolve_splitk(4000, 4000, 2064, **GEMM).source == "envelope"
    provider.answer = mj.SplitK(99, "contiguous")
    decision, caught = warned(mj.resolve_splitk, 4000, 4000, 2064, **options)
    assert not decision.verified
    assert "never verified together" in str(caught[0].message)


def test_providers_of_something_else_are_not_asked():
    for changes, text in (
        ({"gpu": "NVIDIA L40S (sm_89, 142 SMs)"}, "the running GPU is 'NVIDIA L40S"),
        ({"library": "cuBLASLt 13.0.0.0"}, "the running library is 'cuBLASLt 13.0.0.0'"),
        ({"answer": "no algorithm"}, "live-query: no algorithm"),
    ):
        reason = live_query.ask(query(), Provider(**changes))
        assert isinstance(reason, str)
        assert text in reason
    assert "running GPU" in str(live_query.ask(query("ada"), Provider()))
    m = export.symbolic_shape("m")[0]
    assert live_query.ask(query(m=m), Provider()) == "live-query: a dimension is symbolic"
    with pytest.raises(UnsupportedFeatureError, match=r"cuBLASLt 12\.8\.3\.14 on this GPU says"):
        live_query.ask(query(), Provider(mj.SplitK(2, "serial")))
    assert isinstance(live_query.ask(query(), Provider(mj.SplitK(1))), SplitDecision)


@pytest.mark.parametrize(
    ("splits", "capability", "answer"),
    [
        (0, (9, 0), mj.SplitK(1, "none")),  # the library's word for no split
        (1, (9, 0), mj.SplitK(1, "none")),
        (3, (9, 0), mj.SplitK(3, "contiguous")),
        (3, (10, 0), "S = 3, and nobody has measured how this GPU combines the parts"),
    ],
)
def test_answers_of_cublaslt(splits, capability, answer):
    found = Algorithm(0, 0, splits, 0, 0, 0, 0, 0, b"")
    driver = SimpleNamespace(capability=capability)
    library = SimpleNamespace(driver=driver, heuristic=lambda call: found)
    provider = live_query.CublasLtProvider(library)
    setting = Setting("e4m3", "e4m3", "float32", True, 0)
    assert provider.split(16, 16, 16, setting) == answer
