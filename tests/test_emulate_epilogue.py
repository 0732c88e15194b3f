"""emulate: which scalings and conversions of a result are folded into its GEMM."""

import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from emulate_cases import (
    BF16,
    E4M3,
    E5M2,
    F32,
    A,
    B,
    M,
    N,
    S,
    T,
    codes,
    dot,
    emulate,
    only,
    plain,
    scaled,
)
from jax import lax

import mmaemu_jax as mj
from mmaemu_jax.testing import assert_bitwise_equal

pytestmark = pytest.mark.filterwarnings("ignore::mmaemu_jax.errors.ExperimentalPresetWarning")


def test_a_scaled_result_is_folded():
    assert only(scaled, A, B, S, T).epilogue == "multiplied"
    scale = (S * T).astype(ml_dtypes.bfloat16)
    inside = emulate(scaled)(A, B, S, T)
    assert_bitwise_equal(inside, plain(A, B, scale, dtype=BF16))
    outside = emulate(scaled, epilogue="jaxpr")(A, B, S, T)
    assert_bitwise_equal(outside, jax.jit(jnp.multiply)(plain(A, B, dtype=BF16), scale))
    assert np.any(np.asarray(inside) != np.asarray(outside))


def test_division_reshape_and_transpose_are_folded():
    def fn(a, b, s):
        return dot(a, b, dtype=BF16).reshape(2, M // 2, N).transpose(2, 0, 1) / s.astype(BF16)

    assert only(fn, A, B, S).epilogue == "divided"
    scale = np.divide(np.ones((), BF16), S.astype(BF16), dtype=ml_dtypes.bfloat16)
    y = jax.jit(emulate(fn))(A, B, S)
    assert_bitwise_equal(y, plain(A, B, scale, dtype=BF16).reshape(2, M // 2, N).transpose(2, 0, 1))


def test_the_first_scale_is_the_one_that_is_free():
    def fn(a, b, s, t):
        return dot(a.astype(BF16), b.astype(BF16) * s.astype(BF16)) * t

    assert only(fn, A, B, S, T).epilogue == "multiplied"
    assert_bitwise_equal(emulate(fn)(A, B, S, T), plain(A, B, T, S.astype(ml_dtypes.bfloat16)))


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (lambda a, b, s: dot(a[:, :32], b[:32, :8]) * s, "padded"),
        (lambda a, b, s: dot(a.astype(F32) * s, b.astype(F32)) * (s + 1), "has a scale already"),
        (lambda a, b, s: dot(a.astype(F32), b.astype(F32) * s) * 3.0, "alpha"),
        (lambda a, b, s: (dot(a, b) * s, jnp.ones((M, N)) * s), "other uses"),
        (lambda a, b, s: (lambda y: (y * s, y))(dot(a, b)), ""),
        (lambda a, b, s: dot(a, b) * jnp.arange(N) * s, ""),
        (lambda a, b, s: dot(a, b) + s, "bias or a matrix"),
    ],
)
def test_scalings_that_are_not_folded(fn, words):
    gemm = only(fn, A, B, S)
    assert gemm.epilogue == ""
    assert words in gemm.note
    assert bool(words) == bool(gemm.note)


def to_fp8(y, dtype, clip=jnp.clip):
    bound = float(jnp.finfo(dtype).max)
    return clip(y, -bound, bound).astype(dtype)


def lax_clamp(y, low, high):
    return lax.clamp(y.dtype.type(low), y, y.dtype.type(high))


@pytest.mark.parametrize("clip", [jnp.clip, lax_clamp])
@pytest.mark.parametrize(("b_dtype", "dtype"), [(E4M3, E4M3), (E5M2, E5M2)])
def test_a_conversion_to_fp8_is_folded(clip, b_dtype, dtype):
    def fn(a, b, s):
        return to_fp8(dot(a, b, dtype=BF16) * s.astype(BF16), dtype, clip).T

    b = B.astype(b_dtype)
    gemm = only(fn, A, b, S)
    assert (gemm.out_dtype, gemm.epilogue) == (jnp.dtype(dtype).name, "multiplied")
    scale = S.astype(ml_dtypes.bfloat16)
    assert_bitwise_equal(jax.jit(emulate(fn))(A, b, S), plain(A, b, scale, dtype=dtype).T)


def test_the_split_of_an_fp8_result_is_known_without_its_scale():
    """The H100's table was recorded without scale_result, which a folded conversion has."""
    a, b = codes(1, (64, 1024)), codes(2, (1024, 128))
    by_table = functools.partial(mj.emulate, profile="hopper")
    with pytest.warns(mj.errors.UnverifiedSplitWarning, match="recorded without scale_result"):
        by_table(lambda a, b: to_fp8(dot(a, b), E4M3))(a, b)
    unscaled = by_table(functools.partial(dot, dtype=E4M3))(a, b)  # no warning, here an error
    assert_bitwise_equal(unscaled, plain(a, b, dtype=E4M3))


@pytest.mark.filterwarnings("ignore::mmaemu_jax.errors.UnverifiedSplitWarning")
def test_a_scale_after_a_scaled_operand_is_that_of_the_fp8_result():
    def fn(a, b, s, t):
        return to_fp8(dot(a.astype(BF16) * s.astype(BF16), b.astype(BF16)) / t, E4M3)

    gemm = only(fn, A, B, S, T)
    assert (gemm.scale_a, gemm.epilogue, gemm.scale_result) == ("multiplied", "", "divided")
    scale, inverse = S.astype(ml_dtypes.bfloat16), np.float32(1) / T
    desired = plain(A, B, scale, dtype=E4M3, scale_result=inverse)
    assert_bitwise_equal(jax.jit(emulate(fn))(A, B, S, T), desired)


@pytest.mark.parametrize(
    "fn",
    [
        lambda y: jnp.clip(y, -440, 440).astype(E4M3),
        lambda y: jnp.clip(y, -448, None).astype(E4M3),
        lambda y: y.astype(E4M3),
        lambda y: jnp.clip(y, -448, 448).astype(BF16),
        lambda y: to_fp8(y, E5M2),  # no such GEMM of two E4M3 operands
    ],
)
def test_other_conversions_are_not_folded(fn):
    assert only(lambda a, b: fn(dot(a, b)), A, B).out_dtype == "float32"


def test_an_amax_beside_the_conversion_is_noted():
    def fn(a, b):
        y = dot(a, b)
        return to_fp8(y, E4M3), jnp.max(jnp.abs(y))

    assert "magnitudes" in only(fn, A, B).note


def test_a_bias_after_a_folded_scale_is_noted():
    gemm = only(lambda a, b, s: dot(a, b) * s + jnp.arange(N), A, B, S)
    assert gemm.epilogue == "multiplied"
    assert "not modelled" in gemm.note
