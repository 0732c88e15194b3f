"""explain says what the call does: the same error, the same warnings, the same plan."""

import dataclasses
import functools
import json
import random
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import recordings
from api_calls import B200, BF16, E4M3, E5M2, E8M0, FNUZ, f32, zeros
from jax import export

import mmaemu_jax as mj
from mmaemu_jax import api, backends
from mmaemu_jax.errors import ReferenceRejectsError, UnverifiedSplitWarning
from mmaemu_jax.formats import format_of

GRID = 1500
PROFILES = [None, "hopper", "hopper", *mj.list_profiles()]


@pytest.fixture
def bound(monkeypatch):
    """What reaches the primitive, which computes nothing."""
    calls = []

    def bind(a, b, *_scales, **params):
        calls.append(params)
        return jnp.zeros((a.shape[0], b.shape[1]), params["out_dtype"])

    monkeypatch.setattr(api.primitive, "bind", bind)
    return calls


def abstract(value):
    """The ShapeDtypeStruct of an array."""
    if isinstance(value, jax.Array | np.ndarray | np.generic) and value.dtype != np.bool_:
        return jax.ShapeDtypeStruct(value.shape, value.dtype)
    return value


def outcome(bound: list, arguments: dict) -> tuple:
    """Error, warnings, and what the call hands to the primitive (None if nothing)."""
    bound.clear()
    error = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            mj.scaled_mm(**arguments)
        except Exception as raised:
            error = (type(raised), str(raised))
    (params,) = bound or [None]
    return error, [(w.category, str(w.message)) for w in caught], params


def check_agreement(bound: list, arguments: dict, explained: dict | None = None) -> mj.CallPlan:
    """The plan of ``arguments`` (or of ``explained``), which the call must follow."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = mj.explain(**(arguments if explained is None else explained))
    error, warned, params = outcome(bound, arguments)
    assert (plan.error and (type(plan.error), str(plan.error))) == error
    assert [(n.category, n.text) for n in plan.notices] == warned
    assert plan.is_empty == (params is None and error is None)
    if params is not None:
        assert plan.accumulation == params["plan"]
        assert plan.preset.model == params["model"]
        assert plan.call.out_dtype == params["out_dtype"]
        assert params["plan"].splits == plan.decision.S
        assert plan.decision == decision_of(arguments, plan)
    assert str(plan)
    json.dumps(plan.to_dict())
    return plan


def decision_of(arguments: dict, plan: mj.CallPlan) -> mj.SplitDecision:
    """The same by resolve_splitk, which does not know of scale_result."""
    if plan.call.scale_result is not None and format_of(plan.call.out_dtype) is not None:
        return plan.decision
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return mj.resolve_splitk(
            plan.call.M, plan.call.N, plan.call.K,
            a_dtype=plan.call.input.dtype, b_dtype=plan.call.mat2.dtype,
            out_dtype=plan.call.out_dtype, use_fast_accum=plan.call.use_fast_accum,
            profile=plan.profile, splitk=arguments["splitk"],
        )  # fmt: skip


@functools.cache
def array(shape: tuple, dtype) -> jax.Array:
    return jnp.asarray(np.zeros(shape, dtype))


def random_arguments(rng: random.Random) -> dict:
    """A call in which each argument is good more often than not."""

    def pick(good, bad, odds=0.07):
        return rng.choice(bad if rng.random() < odds else good)

    m = pick([1, 16, 33, 64, 512], [0, 3])
    k = pick([16, 1024, 2064, 8192], [0, 24, 1000])
    n = pick([16, 48, 1024, 2048], [0, 8, 100])
    dtypes = [FNUZ, E8M0, np.float32, np.int8]
    scales = [1.0, np.float32(2), f32(1, 1), f32(1, 1, 1)]
    wrong = [1, None, "1", np.float64(1), f32(1, 2), f32(1, m, 1), zeros(1, dtype=BF16)]
    shape_a = pick([(m, k)], [(m,), (m, k + 16), (1, m, k)])
    return {
        "input": pick([array(shape_a, pick([E4M3, E4M3, E5M2], dtypes))], [None, [[1]], 3.0], 0.02),
        "mat2": pick([array((k, n), pick([E4M3, E4M3, E5M2], dtypes))], [None, "mat2"], 0.02),
        "scale_a": pick(scales, [*wrong, f32(1, m, 1)]),
        "scale_b": pick(scales, [*wrong, f32(1, 1, n)]),
        "bias": pick([None], [zeros(n, dtype=BF16), zeros(n, dtype=np.float32), 1.0]),
        "scale_result": pick([None, None, 1.0, f32(2)], [2, f32(1, 2), np.float16(1)]),
        "out_dtype": pick(
            [None, jnp.bfloat16, "float32", np.float16, "e5m2", "e4m3"],
            ["nope", 3, np.float64, np.int8, FNUZ],
        ),
        "use_fast_accum": pick([True, False], [1, None, np.True_]),
        "profile": pick(PROFILES, ["nope", 3]),
        "splitk": pick(
            ["auto", "auto", "auto_or_unsplit", 1, 1, "table", "live"],
            [0, 2, None, (3, "contiguous"), (2, "serial"), (1, 2, 3), "nope", mj.SplitK(70)],
            0.2,
        ),
        "backend": pick(["auto", "cpu", "reference", "cpu:scalar"], ["cuda", "nope", None, 3]),
    }


def test_explain_and_the_call_never_disagree(bound):
    rng = random.Random(20)
    seen = {}
    for _ in range(GRID):
        arguments = random_arguments(rng)
        explained = {
            name: abstract(x) if rng.random() < 0.5 else x for name, x in arguments.items()
        }
        plan = check_agreement(bound, arguments, explained)
        kinds = {type(plan.error).__name__, *(n.category.__name__ for n in plan.notices)}
        if plan.decision is not None:
            kinds.add(plan.decision.source)
        seen |= {kind: seen.get(kind, 0) + 1 for kind in kinds}
    wanted = {
        "NoneType", "TypeError", "ValueError", "ReferenceRejectsError", "UnsupportedFeatureError",
        "SplitKUnknownError", "BackendUnavailableError", "ExperimentalPresetWarning",
        "UnverifiedSplitWarning", "UnvalidatedEnvelopeWarning", "explicit", "workspace0", "table",
        "envelope", "assumed",
    }  # fmt: skip
    assert wanted <= set(seen), seen
    assert seen["NoneType"] > GRID / 10


def test_the_recorded_argument_grid(bound):
    raised = {}
    for case in recordings.call_cases():
        for output in case.outputs:
            arguments = {
                "input": case.a,
                "mat2": case.b.T,
                "scale_a": case.scale_a,
                "scale_b": case.scale_b,
                "scale_result": output.scale_result,
                "out_dtype": output.out_dtype,
                "use_fast_accum": output.fast,
                "profile": "ada",
                "splitk": output.split,
            }
            structs = {name: abstract(x) for name, x in arguments.items()}
            plan = check_agreement(bound, arguments, structs)
            name = None if plan.error is None else type(plan.error).__name__
            assert name == output.error
            raised[name] = raised.get(name, 0) + 1
    assert raised == {None: 598, "ReferenceRejectsError": 4645}


def test_tracers_and_mixed_arguments(bound):
    def program(a, b, scale):
        arguments = {"input": a, "mat2": b, "scale_a": scale, "scale_b": 1.0}
        options = {"out_dtype": BF16, "use_fast_accum": True, "splitk": "auto"}
        plans.append(check_agreement(bound, {**arguments, **options}))
        mixed = {**arguments, "mat2": abstract(zeros(8192, 2048))}
        plans.append(check_agreement(bound, {**arguments, **options}, {**mixed, **options}))
        return scale

    plans = []
    jax.jit(program)(zeros(16, 8192), zeros(8192, 2048), np.float32(1))
    assert [p.decision.S for p in plans] == [2, 2]
    assert plans[0].to_dict() == plans[1].to_dict()


def test_symbolic_dimensions():
    (m,) = export.symbolic_shape("m")
    x = jax.ShapeDtypeStruct((m, 32), E4M3)
    plan = mj.explain(x, zeros(32, 16), 1.0, 1.0, out_dtype=BF16, splitk=1)
    assert plan.error is None
    assert json.loads(json.dumps(plan.to_dict()))["call"]["input"]["shape"] == ["m", 32]
    unknown = mj.explain(x, zeros(32, 16), 1.0, 1.0, out_dtype=BF16)
    assert isinstance(unknown.error, mj.errors.SplitKUnknownError)


def test_the_call_does_not_take_structs():
    with pytest.raises(TypeError, match="input must be a jax or numpy array, got jax"):
        mj.scaled_mm(abstract(zeros(16, 16)), zeros(16, 16), 1.0, 1.0)


# What a plan says


def test_a_plan_that_computes():
    plan = mj.explain(
        zeros(16, 8192), zeros(8192, 2048), 1.0, 1.0, out_dtype=BF16, profile="hopper-te"
    )
    assert (plan.maturity, plan.evidence) == ("experimental", "experimental")  # because S > 1
    assert [n.category for n in plan.notices] == [UnverifiedSplitWarning]
    text = str(plan)
    for part in (
        "hopper-te: NVIDIA H100 PCIe", "source table, NOT verified", "heur_h100pcie",
        "a new chain every 128 elements", "splits of contiguous 128-tiles",
        "UnverifiedSplitWarning", "not cuda", "-> bfloat16, slow",
    ):  # fmt: skip
        assert part in text
    as_dict = json.loads(json.dumps(plan.to_dict()))
    assert as_dict["split"]["source"] == "table"
    assert as_dict["error"] is None
    assert as_dict["warnings"][0]["category"] == "UnverifiedSplitWarning"


@pytest.mark.parametrize(
    ("profile", "splitk", "evidence", "split"),
    [
        ("hopper", 1, "inherited: the bits of another project's model",
         "S = 1 (none), as passed: whether the GPU would split like this was not looked up"),
        ("hopper", "auto", "inherited: ", "S = 2 (contiguous), source table, verified"),
        ("hopper", (48, "contiguous"), "inherited: ",
         "S = 48 (contiguous), source explicit, NOT verified"),
        ("hopper-ws0", "auto", "inherited: ", "S = 1 (none), source workspace0, verified"),
        ("ada", 1, "replayed: recordings of this GPU", "S = 1 (none), as passed"),
        ("hopper-experimental", 1,
         "experimental: nobody compared these bits with the GPU's; the call warns",
         "S = 1 (none), as passed"),
    ],
)  # fmt: skip
def test_what_is_said_of_evidence_and_split(profile, splitk, evidence, split):
    options = {"out_dtype": BF16, "profile": profile, "splitk": splitk, "use_fast_accum": True}
    lines = str(mj.explain(zeros(16, 8192), zeros(8192, 2048), 1.0, 1.0, **options)).splitlines()
    (said_of_evidence,) = (line for line in lines if line.startswith("evidence"))
    (said_of_split,) = (line for line in lines if line.startswith("split"))
    assert said_of_evidence.split(maxsplit=1)[1].startswith(evidence)
    assert said_of_split.split(maxsplit=1)[1].startswith(split)


def test_an_experimental_preset_is_said_too():
    preset = mj.Preset("mine", 32, 13, 13, -132, slow_chunk=128)
    profile = dataclasses.replace(mj.get_profile("hopper"), preset=preset)
    plan = mj.explain(zeros(16, 32), zeros(32, 16), 1.0, 1.0, profile=profile, splitk=1)
    assert "inherited: " in str(plan)
    assert "; but with an experimental preset, so the call warns" in str(plan)


def test_a_plan_that_raises_keeps_what_is_known():
    plan = mj.explain(zeros(16, 24), zeros(24, 16), 1.0, 1.0, profile="ada")
    assert isinstance(plan.error, ReferenceRejectsError)
    assert plan.error.__traceback__ is None
    assert (plan.profile.name, plan.call.K, plan.decision) == ("ada", 24, None)
    assert "raises ReferenceRejectsError" in str(plan)
    wrong = mj.explain(3, zeros(24, 16), 1.0, 1.0, profile="nope")
    assert (wrong.call, wrong.profile, wrong.preset, wrong.evidence) == (None, None, None, None)
    assert wrong.to_dict()["error"]["class"] == "TypeError"


def test_an_empty_plan():
    plan = mj.explain(zeros(0, 16), zeros(16, 16), 1.0, 1.0)
    assert plan.is_empty
    assert "zeros" in str(plan)


def test_evidence_of_an_experimental_profile():
    plan = mj.explain(zeros(16, 16), zeros(16, 16), 1.0, 1.0, None, None, BF16, True, profile=B200)
    assert (plan.maturity, plan.evidence) == ("experimental", "experimental")
    assert isinstance(plan.error, mj.errors.SplitKUnknownError)


@pytest.mark.parametrize(
    ("backend", "platform", "target", "name"),
    [
        ("reference", "cpu", None, "reference"),
        ("cpu:scalar", "cpu", None, "cpu:scalar"),
        ("auto", "cpu", "scalar", "cpu:scalar"),
        ("cpu", "cpu", "scalar", "cpu:scalar"),
        ("auto", "tpu", None, "reference"),
    ],
)
def test_the_backend_that_would_run(monkeypatch, backend, platform, target, name):
    monkeypatch.setattr(backends.config, "CPU_TARGET", target)
    choice = backends.choose_backend(backend, platform)
    assert choice.name == name
    every = {s.name for s in backends.backends_status()} - {"cpu"}
    assert {s.name for s in choice.skipped} == every - {name}
    assert all(s.why_not for s in choice.skipped)


def test_the_fastest_kernel_is_chosen(monkeypatch):
    monkeypatch.setattr(backends.config, "CPU_TARGET", None)
    first = next(s.name for s in backends.backends_status() if s.usable and ":" in s.name)
    assert backends.choose_backend("auto", "cpu").name == first


def test_a_platform_without_kernels(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    x, w = (jax.ShapeDtypeStruct(shape, jnp.float8_e4m3fn) for shape in ((16, 32), (32, 16)))
    plan = mj.explain(x, w, 1.0, 1.0, splitk=1)
    assert plan.backend.name == "reference"
    assert [n.category for n in plan.notices] == [mj.errors.BackendFallbackWarning]
    refused = mj.explain(x, w, 1.0, 1.0, splitk=1, backend="cpu:scalar")
    assert isinstance(refused.error, mj.errors.BackendUnavailableError)
