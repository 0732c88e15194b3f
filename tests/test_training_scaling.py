"""Scales and quantised bytes of the recipes: torch's recording, Flax itself, numpy oracles."""

import dataclasses
import itertools
import pathlib

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax.linen import fp8_ops
from training_oracles import te_update

import mmaemu_jax as mj
from mmaemu_jax.formats import E4M3, E5M2, format_named
from mmaemu_jax.testing import assert_bitwise_equal
from mmaemu_jax.training import Quantization, ScaleState, Scaling, get_recipe
from mmaemu_jax.training.cast import cast, folded_scale, scale_output
from mmaemu_jax.training.division import divide_float32
from mmaemu_jax.training.scaling import amax_bits

RECORDING = pathlib.Path(__file__).parent / "vectors" / "training" / "torch_quantization.npz"
DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
RULES = {
    "torchao": get_recipe("torchao_tensorwise").lhs.scaling,
    "te": get_recipe("te_pytorch_current").lhs.scaling,
    "te_power_of_two": mj.training.te_pytorch("current", power_of_two=True).lhs.scaling,
    "te_epsilon": dataclasses.replace(
        get_recipe("te_pytorch_current").lhs.scaling, amax_floor=2.0**-20
    ),
}
#: Half of the smallest is a tie, as no quotient of normal size is.
HARD_FLOAT32 = np.array(
    [0, 1, 2, 0x7FFFFF, 0x800000, 0x2B8CBCCC, 0x3F800000, 0x40000000, 0x43E00000, 0x7F7FFFFF,
     0x7F800000, 0x7F800001, 0x7FC00000], np.uint32,
)  # fmt: skip


def bits(x) -> np.ndarray:
    x = np.asarray(x)
    return x.view(f"u{x.dtype.itemsize}")


def canonical(codes: np.ndarray, fp8) -> np.ndarray:
    return np.where(np.isnan(fp8.values[codes]), 0x7F, codes).astype(np.uint8)


def canonical_float32(pattern: np.ndarray) -> np.ndarray:
    return np.where((pattern & 0x7FFFFFFF) > 0x7F800000, 0x7FFFFFFF, pattern).astype(np.uint32)


@pytest.fixture(scope="module")
def recording():
    with np.load(RECORDING) as arrays:
        return dict(arrays)


@pytest.mark.parametrize("formula", RULES)
def test_bytes_and_scales_are_torchs(recording, formula):
    """All operation by operation; two settings of each formula also as one compiled program."""
    assert len(recording["cases"]) == 41
    for dtype, fmt in itertools.product(DTYPES, ("e4m3", "e5m2")):
        quantization = Quantization(fmt, RULES[formula])
        x = jnp.asarray(recording[f"x_{dtype}"].view(DTYPES[dtype]))
        of_each = jax.vmap(lambda row, q=quantization: cast(q, row, None, row.dtype)[:2])
        with jax.disable_jit():
            results = [of_each(x)]
        if (dtype, fmt) in (("float32", "e4m3"), ("bfloat16", "e5m2")):
            results.append(of_each(x))
        key = f"{formula}_{fmt}_{dtype}"
        want_codes = canonical(recording[f"{key}_codes"], quantization.fp8)
        want_inverse = canonical_float32(recording[f"{key}_inverse"])
        for codes, inverse in results:
            assert_bitwise_equal(bits(inverse), want_inverse, err_msg=key)
            assert_bitwise_equal(bits(codes), want_codes, err_msg=key)


def test_division_is_rounded_once():
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 1 << 32, (2, 200_000), dtype=np.uint32)
    edges = np.concatenate([HARD_FLOAT32, HARD_FLOAT32 | 0x80000000]).astype(np.uint32)
    x = np.concatenate([x, np.repeat(edges, len(edges))])
    y = np.concatenate([y, np.tile(edges, len(edges))])
    with np.errstate(all="ignore"):
        quotient = x.view(np.float32) / y.view(np.float32)
    want = canonical_float32(quotient.view(np.uint32))
    assert_bitwise_equal(np.asarray(jax.jit(divide_float32)(x, y)), want)
    with jax.disable_jit():
        assert_bitwise_equal(np.asarray(divide_float32(jnp.asarray(x), jnp.asarray(y))), want)


def test_amax_of_many_elements():
    """XLA's own maximum loses NaN from 4096 elements on, and flushes subnormals."""
    x = np.full(5000, 2.0**-140, np.float32)
    x[7] = -(2.0**-139)
    kept, ignored = Scaling(nan_amax="kept"), Scaling(nan_amax="ignored")
    for rule in (kept, ignored):
        assert int(amax_bits(rule, jnp.asarray(x))) == np.float32(2.0**-139).view(np.uint32)
    x[4999] = np.nan
    assert int(amax_bits(kept, jnp.asarray(x))) > 0x7F800000
    assert int(amax_bits(ignored, jnp.asarray(x))) == np.float32(2.0**-139).view(np.uint32)
    assert int(amax_bits(kept, jnp.zeros((0, 3)))) == 0


# -------------------------------------------------------------------------- Transformer Engine


#: At the last one, the largest has just left a history of four.
AMAXES = [
    1.5, 3.0, 0.0, 0.7, 2.0**-140, np.inf, 0.1, 3e38, np.nan, 0.2, 0.3, 0.4, 0.5, 2e-3,
    8.0, 1.0, 1.0, 1.0, 0.0,
]  # fmt: skip


@pytest.mark.parametrize("use", ["max", "most_recent"])
@pytest.mark.parametrize(
    "make", [mj.training.te_pytorch, mj.training.te_jax], ids=["te_pytorch", "te_jax"]
)
def test_delayed_scaling_over_steps(make, use):
    """The bytes of a step use the scale of the history before it."""
    recipe = make(margin=2, history_length=4, history_use=use)
    pytorch = make is mj.training.te_pytorch
    step = jax.jit(lambda x, s: cast(recipe.grad, x, s, x.dtype))
    history, scale = np.zeros(4, np.float32), np.float32(1)
    state = ScaleState(jnp.float32(1), jnp.zeros(4, jnp.float32))
    rng = np.random.default_rng(3)
    for amax in map(np.float32, AMAXES):
        x = (rng.uniform(-1, 1, 15).astype(np.float32) * (amax if np.isfinite(amax) else 1)).astype(
            np.float32
        )
        x = np.append(x, -amax)
        result = step(x, state)
        with np.errstate(all="ignore"):
            inverse = np.float32(1) / scale
        assert_bitwise_equal(bits(result.inverse), bits(inverse))
        assert_bitwise_equal(
            bits(result.codes), bits(np.asarray(mj.quantize(x, "e5m2", np.float32(scale))))
        )
        seen = np.nanmax(np.abs(x))
        history, scale = te_update(
            history, scale, seen, 57344.0, 2, skips=pytorch, use=use, clamps=pytorch
        )
        state = result.state
        assert_bitwise_equal(bits(state.amax_history), bits(history), err_msg=str(amax))
        assert_bitwise_equal(bits(state.scale), bits(scale), err_msg=str(amax))


def test_te_jax_current_scaling_of_unusable_amax():
    rule = get_recipe("te_jax_current").lhs
    for x, inverse in (([0.0, 0.0], 1.0), ([np.inf, 1.0], 1.0), ([np.nan, 1.0], 1.0)):
        result = cast(rule, jnp.asarray(x, jnp.float32), None, jnp.float32)
        assert float(result.inverse) == inverse
    tiny = cast(rule, jnp.asarray([2.0**-130, 0.0], jnp.float32), None, jnp.float32)
    assert float(tiny.inverse) == 0.0  # 448 / amax is Inf there
    assert bits(tiny.codes).tolist() == [0x7E, 0x7F]


# ------------------------------------------------------------------------------------------ Flax


@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes_and_scales_are_flaxs(recording, dtype):
    """Flax under jit, over steps; it flushes subnormals, so those cases are left to the oracle."""
    compute = DTYPES[dtype]
    recipe = mj.training.flax_direct(history_length=4)
    state = ScaleState(jnp.float32(1), jnp.zeros(4, jnp.float32))

    @jax.jit
    def flax_step(x, scale, history):
        new_scale, new_history = fp8_ops.update_fp8_meta(x, jnp.float8_e4m3fn, scale, history)
        return fp8_ops.quantize(x, jnp.float8_e4m3fn, new_scale, compute), new_scale, new_history

    ours = jax.jit(lambda x, s: cast(recipe.lhs, x, s, compute))
    scale, history = state.scale, state.amax_history
    compared = 0
    for case, row in zip(recording["cases"], recording[f"x_{dtype}"], strict=True):
        x = row.view(compute)
        if any(word in case for word in ("subnormal", "smallest", "overflows", "nan", "inf")):
            continue
        codes, scale, history = flax_step(x, scale, history)
        result = ours(x, state)
        state = result.state
        assert_bitwise_equal(bits(result.codes), bits(codes), err_msg=case)
        assert_bitwise_equal(bits(state.scale), bits(scale), err_msg=case)
        assert_bitwise_equal(bits(result.inverse), bits(scale), err_msg=case)
        assert_bitwise_equal(bits(state.amax_history), bits(history), err_msg=case)
        compared += 1
    assert compared > 25


@pytest.mark.parametrize("dtype", DTYPES)
def test_flax_division_against_numpy(dtype):
    """The convention "inverse" against exact products in float64, subnormals included."""
    narrow = DTYPES[dtype]
    rng = np.random.default_rng(4)
    with np.errstate(over="ignore"):
        x = (rng.standard_normal(3000) * rng.lognormal(0, 8, 3000)).astype(narrow)
    quantization = get_recipe("flax_direct").grad
    for scale in (1.0, 0.0123, 7.7, 2.0**-20):
        state = ScaleState(jnp.float32(scale), jnp.zeros(1024, jnp.float32))
        codes = cast(quantization, jnp.asarray(x), state, np.dtype(narrow)).codes
        kept = np.float32(1) / (np.float32(1) / np.float32(scale))
        with np.errstate(all="ignore"):
            factor = np.float32(1) / kept.astype(narrow).astype(np.float32)
            if dtype == "float16":  # which XLA:CPU does not widen
                factor = factor.astype(narrow)
            scaled = (x.astype(np.float64) * factor.astype(np.float64)).astype(np.float32)
            scaled = scaled.astype(narrow)
        want = mj.quantize(scaled, "e5m2")
        assert_bitwise_equal(bits(codes), bits(want), err_msg=str(scale))


@pytest.mark.parametrize("dtype", DTYPES)
def test_scales_after_the_gemm(dtype):
    narrow = DTYPES[dtype]
    rng = np.random.default_rng(6)
    with np.errstate(over="ignore"):
        y = (rng.standard_normal(2000) * rng.lognormal(0, 6, 2000)).astype(narrow)
    a, b = np.float32(0.0123), np.float32(3.3)
    alpha = np.asarray(jax.jit(lambda a, b: folded_scale(narrow, a, b))(a, b))
    assert_bitwise_equal(bits(alpha), bits((a * b).astype(narrow).astype(np.float32)))
    with np.errstate(all="ignore"):
        product = (y.astype(np.float64) * alpha.astype(np.float64)).astype(np.float32)
        want = product.astype(narrow)
    assert_bitwise_equal(bits(jax.jit(scale_output)(y, alpha)), bits(want))


# ------------------------------------------------------------------------------------- refusals


def test_unit_scaling_is_a_saturating_cast():
    x = np.linspace(-1000, 1000, 101).astype(np.float32)
    result = cast(Quantization("e4m3", Scaling(timing="unit")), jnp.asarray(x), None, x.dtype)
    assert float(result.inverse) == 1.0
    assert_bitwise_equal(bits(result.codes), bits(mj.quantize(x, "e4m3")))


def test_scalings_that_are_refused():
    for fields, match in (
        ({"timing": "later"}, r"Scaling: unknown timing 'later'; known: current, delayed, unit"),
        ({"history_length": 0}, r"history_length must be in 1"),
        ({"margin": -1}, r"margin must be in 0"),
        ({"amax_floor": float("inf")}, r"amax_floor must be in"),
        ({"unusable": "previous"}, r"needs a state, got timing='current'.*Ways out"),
    ):
        with pytest.raises(ValueError, match=match):
            Scaling(**fields)
    for fields, match in (
        ({"margin": 1.5}, r"Scaling: margin must be int"),
        ({"margin": True}, r"Scaling: margin must be int"),
        ({"power_of_two": 1}, r"Scaling: power_of_two must be bool"),
        ({"amax_axes": "data"}, r"Scaling: amax_axes must be a tuple"),
    ):
        with pytest.raises(TypeError, match=match):
            Scaling(**fields)


def test_formats_are_names_or_dtypes():
    assert Quantization(jnp.float8_e5m2).fp8 is E5M2
    assert Quantization("e4m3fn").format == "e4m3"
    assert format_named("e4m3") is E4M3
    with pytest.raises(ValueError, match="unknown format 'e3m4'; known: e4m3, e5m2"):
        Quantization("e3m4")
    with pytest.raises(TypeError, match="scaling must be Scaling"):
        Quantization("e4m3", None)
