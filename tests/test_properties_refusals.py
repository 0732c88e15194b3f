"""Whatever is wrong with the arguments, a refusal has a documented class and names the function.

Good calls with one or two arguments replaced by anything. What passes the checks is not computed.
"""

import contextlib
import dataclasses
import importlib
import unittest.mock
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import strategies as draw
from api_calls import BF16, E4M3, E5M2, E8M0, FNUZ, f32, zeros
from hypothesis import given
from hypothesis import strategies as st

import mmaemu_jax as mj
from mmaemu_jax import api, training

REFUSALS = (TypeError, ValueError, mj.errors.MmaemuError)

GEMM = {"input": zeros(32, 48), "mat2": zeros(48, 16), "scale_a": 0.5, "scale_b": f32(0.25)}
OPTIONS = {"use_fast_accum": True, "profile": "ada", "splitk": (2, "serial")}
DTYPES = {"a_dtype": "e4m3", "b_dtype": "e4m3", "out_dtype": "bfloat16", "use_fast_accum": True}
X = np.ones((16, 32), np.float32)


def stand_in(*arguments, **options):
    """Instead of what would compute."""


def explained(**arguments):
    """The call of scaled_mm, by what explain says that it raises."""
    error = mj.explain(**arguments).error
    if error is not None:
        raise error


def contracted(contraction):
    return mj.contract(lambda a, b: a @ b.T, X, X, contraction=contraction, function="contracted")


#: Each function with a good call; the name in messages is that of the function unless given.
CALLS = {
    "scaled_mm": (explained, {**GEMM, **OPTIONS, "bias": None, "scale_result": None,
                              "out_dtype": BF16, "backend": "auto"}),
    "accumulate": (mj.accumulate, {"a": zeros(3, 40), "b": zeros(5, 40), **OPTIONS,
                                   "backend": "auto", "out_dtype_for_split": "float32"}),
    "dot": (mj.dot, {"a": zeros(3, 40), "b": zeros(3, 40), "c": f32(0, 3), "preset": "ada",
                     "fmt": "e4m3", "backend": "auto"}),
    "gemm": (mj.host.gemm, {"a": zeros(3, 40), "b": zeros(5, 40), "scale_a": 1.0, "scale_b": 1.0,
                            "scale_result": None, "c": None, "model": mj.get_preset("ada").model,
                            "out_dtype": "float32", "b_layout": "nk", "backend": "auto",
                            "threads": 1}),
    "quantize": (mj.quantize, {"x": X, "dtype": "e4m3", "scale": f32(2, 16, 1)}),
    "resolve_splitk": (mj.resolve_splitk, {"M": 16, "N": 2048, "K": 8192, **DTYPES,
                                           "profile": "hopper", "splitk": "auto"}),
    "batch_invariance": (mj.batch_invariance, {"N": 2048, "K": 8192, "M": [1, 2], **DTYPES,
                                               "profile": "hopper", "splitk": "auto"}),
    "gemm_cost": (mj.gemm_cost, {"m": 1, "n": 2, "k": 3, "a_dtype": "e4m3", "b_dtype": "e5m2",
                                 "out_dtype": "e4m3", "batch": 1}),
    "get_profile": (mj.get_profile, {"profile": "ada"}),
    "get_preset": (mj.get_preset, {"name": "ada"}),
    "emulate": (mj.emulate, {"fn": len, "profile": "ada", "splitk": 1, "use_fast_accum": None,
                             "epilogue": "xla", "backend": "auto", "on_unsupported": "warn",
                             "contraction": "gather"}),
    "contracted": (contracted, {"contraction": "gather"}),
    "fp8_dot_general": (training.fp8_dot_general, {
        "lhs": X, "rhs": X.T, "dimension_numbers": (((1,), (0,)), ((), ())), "precision": None,
        "preferred_element_type": None, "out_sharding": None, "recipe": "torchao_tensorwise",
        "state": None, "profile": "hopper", "splitk": 1, "backend": "auto",
        "contraction": "gather"}),
    "trace_dot": (mj.trace_dot, {"a": zeros(40), "b": zeros(40), "c": np.float32(1),
                                 "preset": "ada", "fmt": "e4m3"}),
    "get_recipe": (training.get_recipe, {"recipe": "te_jax"}),
    "init_state": (training.init_state, {"recipe": "te_jax"}),
    "Scaling": (training.Scaling, dataclasses.asdict(training.Scaling())),
    "Quantization": (training.Quantization, {"format": "e4m3", "scaling": training.Scaling()}),
    "Gemm": (training.Gemm, {"operands": ("lhs", "rhs"), "use_fast_accum": True, "fp8": True,
                             "out_dtype": None}),
    "Recipe": (training.Recipe, dict(vars(training.get_recipe("te_pytorch_current")))),
    "Contraction": (mj.Contraction, {"mode": "per_device", "axes": (), "parts": 2,
                                     "reduce_dtype": "float32"}),
    "Profile": (mj.Profile, {"name": "mine", "preset": "ada", "split_rule": None, "gpu": "",
                             "workspace_bytes": 0, "rejects": (), "evidence": "experimental",
                             "split_evidence": "experimental", "table_id": None, "pad_key_to": 1}),
    "Preset": (mj.Preset, {"name": "mine", "nfma": 4, "frac": 5, "frac_out": 6, "min_exp": -9,
                           "late_c": False, "slow_chunk": 128, "evidence": "experimental"}),
    "SplitRule": (mj.SplitRule, {"tile_k": 64, "interleaved": True, "schemes": ("serial",),
                                 "empty_split_recorded": True}),
}  # fmt: skip

#: Values of every kind that someone might pass, right somewhere and wrong elsewhere.
JUNK = [
    None, True, np.True_, 0, 1, 2, -1, 3000, 2**40, 2**70, -(2**70), 1.5, float("nan"), -0.0, 1j,
    "", "nope", "auto", "live", "table", "auto_or_unsplit", "hopper", "e5m2", "float32", "kn",
    "f4,f4", ",", "reference", "cuda", "cpu:scalar", "per_device", "error", b"ada", Ellipsis,
    object(), len, float, np.float32, np.dtype(E5M2), np.dtype(BF16), np.dtype("U3"),
    np.dtype(">f4"), FNUZ, [], [1.0], ["e4m3", "e5m2"], [[1]], (), (1,), (1, "none"), (2, "serial"),
    (3, "pairwise"), (2, "contiguous"), (0, "serial"), (10**6, "serial"), ("serial", 2), (2, 3),
    (None, None), (1, 2, 3), ("e4m3", "e5m2"), (("e4m3", "e4m3", "float32"),), {},
    {"fprop": "gather"}, {"wgrad": None}, {1, 2}, slice(1), range(3), range(-3, 3),
    mj.SplitK(3, "pairwise"), mj.SplitK(70, "contiguous"), mj.SplitK("2", "serial"),
    mj.Contraction("per_device", parts=3), mj.get_profile("hopper-te"), mj.get_preset("hopper"),
    mj.get_profile("b200-mma-sync-experimental"), mj.get_preset("b200_mma_sync").model,
    np.float64(1), np.float16(2), np.float32("nan"), np.int8(3), np.uint64(2**63), np.str_("ada"),
    np.datetime64("2020"), f32(1), f32(1, 1), f32(1, 2), f32(0, 3), f32(1, 32, 1), f32(1, 0),
    np.ones((3, 5)), np.ones((), np.complex64), np.ones(2, ">f4"), np.array(2), np.array([2, 3]),
    np.array("x"), np.array([None]), np.zeros(2, [("a", "f4")]), np.ma.masked_array([1.0, 2.0]),
    zeros(), zeros(48), zeros(3, 40), zeros(5, 40), zeros(3, 40, dtype=E5M2), zeros(1, 32, 48),
    zeros(32, 48), zeros(32, 40), zeros(48, 8), zeros(0, 40), zeros(3, 0), zeros(0, 48),
    zeros(48, 16, dtype=FNUZ), zeros(48, 16, dtype=E8M0), zeros(48, 16, dtype=np.int8),
    jnp.ones(3), jnp.zeros((3, 40), E4M3), jnp.zeros((32, 48), BF16), jax.random.key(0),
    jax.ShapeDtypeStruct((32, 48), E4M3), jax.ShapeDtypeStruct((), np.float32),
    (((1,), (1,)), ((), ())), (((0,), (0,)), ((), ())), (((1,), (0,)), ((0,), (1,))),
    (((5,), (0,)), ((), ())), jax.lax.Precision.HIGHEST,
]  # fmt: skip


#: What errors of numpy, JAX or the compiled part were the answer to, which named no function.
FOUND = {
    "dot": {"fmt": {"fprop": "gather"}},
    "gemm": {"b": zeros(5, 41)},
    "resolve_splitk": {"out_dtype": ","},
    "batch_invariance": {"M": 3},
    "get_preset": {"name": "nope"},
    "emulate": {"epilogue": f32(1, 2)},
    "contracted": {"contraction": f32(1, 2)},
    "fp8_dot_general": {"dimension_numbers": (((5,), (0,)), ((), ()))},
    "Contraction": {"mode": f32(1, 0)},
    "Profile": {"preset": 3},
    "Preset": {"evidence": zeros(3)},
    "accumulate": {"out_dtype_for_split": jnp.ones(3)},
}


@contextlib.contextmanager
def nothing_computed():
    """What passes the checks ends before a JAX program; the package's warnings are no matter."""
    replaced = (
        (api.primitive, "bind"),
        (api.jnp, "squeeze"),
        (importlib.import_module("mmaemu_jax.quantize"), "_quantize"),
        (importlib.import_module("mmaemu_jax.training.dot_general"), "_dot"),
    )
    with contextlib.ExitStack() as stack:
        for module, name in replaced:
            stack.enter_context(unittest.mock.patch.object(module, name, stand_in))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", mj.errors.MmaemuWarning)
        yield


@pytest.mark.parametrize("name", CALLS)
@draw.share(1)
@given(data=st.data())
def test_refusals(name, data):
    function, good = CALLS[name]
    names = data.draw(st.lists(st.sampled_from(list(good)), min_size=1, max_size=2, unique=True))
    changes = {argument: data.draw(st.sampled_from(JUNK)) for argument in names}
    text = f"{name}: "
    with nothing_computed():
        try:
            function(**{**good, **changes})
        except REFUSALS as error:
            text = f"{error}"
    assert text.startswith(f"{name}: ")


@pytest.mark.parametrize("name", FOUND)
def test_refusals_that_were_found(name):
    function, good = CALLS[name]
    with nothing_computed(), pytest.raises(REFUSALS, match=f"^{name}: "):
        function(**{**good, **FOUND[name]})


@pytest.mark.parametrize("name", CALLS)
def test_good_calls_are_good(name):
    """Else nothing would be said about one wrong argument."""
    function, good = CALLS[name]
    with nothing_computed():
        function(**good)
