"""record_gemms: the function's own bits, and a recording of every FP8 GEMM that gave them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import mmaemu_jax as mj
from mmaemu_jax.errors import UnemulatedDotWarning
from mmaemu_jax.testing import assert_bitwise_equal

E4M3, BF16 = jnp.float8_e4m3fn, jnp.bfloat16


def fp8(*shape, seed=0):
    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return mj.quantize(values, "e4m3", 32.0)


def dot(x, w, out=jnp.float32, precision=None):
    dims = (((x.ndim - 1,), (0,)), ((), ()))
    return lax.dot_general(x, w, dims, precision, preferred_element_type=out)


def record(fn, *args):
    """The recordings of a call that returned fn's own bits."""
    gemms = []
    assert_bitwise_equal(mj.record_gemms(fn, gemms.append)(*args), jax.jit(fn)(*args))
    return sorted(gemms, key=lambda gemm: gemm.name)


def emulated(fn):
    return mj.emulate(fn, "hopper", 1)


def test_a_dot_as_it_ran_here():
    x, w = fp8(16, 512), fp8(512, 32, seed=1)
    (gemm,) = record(dot, x, w)
    assert (gemm.shape, gemm.use_fast_accum) == ((16, 32, 512), True)
    for given, wanted in ((gemm.a, x), (gemm.b, w.T), (gemm.out, jax.jit(dot)(x, w))):
        assert_bitwise_equal(given, np.asarray(wanted))
    assert gemm.name.startswith("000-test_record_gemms.")
    (found,) = mj.check_outputs(gemm, "hopper", 1, explain=True).gemms
    assert not found.equal
    assert "XLA's own dot on CPUs" in found.explanations[0]


def test_precision_scales_and_padding():
    """A dequantised product that XLA pads: K, N and M to multiples of 16."""

    def layer(x, w, scale):
        x, w = x.astype(BF16) * scale, w.astype(BF16) / scale
        return dot(x, w, BF16, "highest")

    x, w, scale = fp8(3, 200), fp8(200, 20, seed=1), BF16(0.37)
    (gemm,) = record(emulated(layer), x, w, scale)
    assert (gemm.shape, gemm.a.shape, gemm.out.shape) == ((16, 32, 208), (3, 208), (3, 32))
    assert not gemm.use_fast_accum
    assert gemm.scale_a == np.float32(BF16(0.37))
    (native,) = record(layer, x, w, scale)
    for name in ("a", "b", "scale_a", "scale_b"):
        assert_bitwise_equal(getattr(native, name), getattr(gemm, name))
    assert mj.check_outputs(gemm, "hopper", 1).equal


def test_gemms_of_this_package():
    def model(x, w):
        y = mj.scaled_mm(x, w.T, 0.5, 0.25, scale_result=3.0, out_dtype=E4M3, splitk=1)
        z = jax.vmap(lambda v: mj.scaled_mm(y, v, 0.5, 1.0, out_dtype=BF16, splitk=1))
        return z(jnp.stack([x, x[::-1]])), mj.dot(x, x, jnp.ones(16), preset="ada")

    gemms = record(model, fp8(16, 256), fp8(64, 256, seed=1)[:16])
    assert [g.name[:3] for g in gemms] == ["000", "001", "001"]
    assert [g.name[-2:] for g in gemms[1:]] == ["-0", "-1"]
    assert gemms[0].scale_result == 3
    assert mj.check_outputs(gemms, "hopper", 1).equal


def test_every_execution_of_a_loop(tmp_path):
    def model(x, w):
        with jax.named_scope("mlp"):
            return lax.scan(lambda c, v: ((dot(c.astype(E4M3), v) / 64), None), x, w)[0]

    x, w = fp8(16, 32).astype(jnp.float32), fp8(3, 32, 32)
    mj.record_gemms(emulated(model), tmp_path / "dumps")(x, w)
    names = [path.stem for path in sorted((tmp_path / "dumps").iterdir())]
    assert names == ["000-mlp.scan", "000-mlp.scan_run0001", "000-mlp.scan_run0002"]
    assert mj.check_outputs(tmp_path / "dumps", "hopper", 1).equal


def test_a_backward_pass():
    def loss(x, w):
        return mj.training.fp8_dot_general(
            x, w, (((1,), (0,)), ((), ())), recipe="te_pytorch_current", profile="hopper-ws0"
        ).sum()

    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape, np.float32) for shape in ((32, 64), (64, 48)))
    gemms = []
    mj.record_gemms(jax.grad(loss, argnums=(0, 1)), gemms.append)(x, w)
    assert sorted(g.use_fast_accum for g in gemms) == [False, False]  # the result is not needed
    assert mj.check_outputs(gemms, "hopper-ws0").equal


def test_what_is_not_recorded_is_told():
    def model(x, w):
        return dot(x.astype(BF16) * jnp.linspace(1, 2, 64, dtype=BF16), w.astype(BF16))

    with pytest.warns(UnemulatedDotWarning, match="not recorded: dot_general.*not a scalar"):
        mj.record_gemms(model, lambda gemm: None)(fp8(16, 64), fp8(64, 16))


def test_keywords_and_pytrees():
    def model(layers, *, x, name):
        assert name == "static"
        return {"y": dot(x, layers["w"])}

    x, w = fp8(16, 32), fp8(32, 16, seed=1)
    gemms = []
    got = mj.record_gemms(model, gemms.append)({"w": w}, x=x, name="static")
    assert_bitwise_equal(got["y"], gemms[0].out)
    assert mj.record_gemms(model, print).__name__ == "model"


def test_arguments():
    with pytest.raises(TypeError, match="fn must be callable"):
        mj.record_gemms(3, "dumps")
    with pytest.raises(TypeError, match="into must be a path or a function"):
        mj.record_gemms(dot, 3)


def test_a_recorder_that_fails_is_heard(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Exception, match=r"FileExistsError|NotADirectoryError"):
        mj.record_gemms(dot, tmp_path / "file")(fp8(16, 32), fp8(32, 16))
