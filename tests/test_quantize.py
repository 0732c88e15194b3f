"""quantize against exact arithmetic: every 16-bit input, strided float32, hard scales."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import mmaemu_jax as mj
from mmaemu_jax.formats import E4M3, E5M2
from mmaemu_jax.quantize import float32_bits, multiply_float32
from mmaemu_jax.testing import assert_bitwise_equal

FORMATS = pytest.mark.parametrize("fp8", [E4M3, E5M2], ids=lambda f: f.name)
#: None, ordinary, subnormal, huge, the two zeros, not finite.
SCALES = [
    None, 1.0, 0.3, -3.0, 2.0**-9, 448.0, 1e-40, 3 * 2.0**-149, 2.0**120, 3e38,
    0.0, -0.0, float("inf"), float("-inf"), float("nan"),
]  # fmt: skip


def all_of(dtype) -> np.ndarray:
    """Every value of a 16-bit dtype."""
    return np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(dtype)


def strided_float32(stride: int) -> np.ndarray:
    """Every ``stride``-th float32 pattern."""
    return np.arange(0, 1 << 32, stride, dtype=np.uint64).astype(np.uint32).view(np.float32)


def rn32_product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """RN32(x * y): a float64 holds the product of two float32 exactly, so it is rounded once."""
    with np.errstate(all="ignore"):
        return (x.astype(np.float64) * y.astype(np.float64)).astype(np.float32)


def nearest_codes(values: np.ndarray, fp8) -> np.ndarray:
    """Codes of float32 ``values``: saturated, then the nearest, ties to the even code."""
    magnitudes = fp8.values[:128]
    ordered = magnitudes[np.isfinite(magnitudes)]
    midpoints = (ordered[1:] + ordered[:-1]) / 2
    with np.errstate(invalid="ignore"):  # signalling NaN
        clipped = np.minimum(np.abs(values.astype(np.float64)), fp8.max_finite)
    below, above = (np.searchsorted(midpoints, clipped, side=side) for side in ("left", "right"))
    code = np.where(below % 2 == 0, below, above)
    code = np.where(np.isnan(values), 0x7F, code | (np.signbit(values) * 0x80))
    return code.astype(np.uint8).view(fp8.dtype)


def expected(x: np.ndarray, scale, fp8) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # signalling NaN
        wide = x.astype(np.float32)
    if scale is not None:
        wide = rn32_product(wide, np.asarray(scale, np.float32))
    return nearest_codes(wide, fp8)


@FORMATS
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16], ids=["bfloat16", "float16"])
def test_every_16_bit_input(fp8, dtype):
    x = all_of(dtype)
    for scale in SCALES:
        codes = mj.quantize(x, fp8.dtype, scale)
        assert_bitwise_equal(np.asarray(codes), expected(x, scale, fp8), err_msg=str(scale))


@FORMATS
def test_strided_float32_inputs(fp8):
    x = strided_float32(65521)
    for scale in SCALES:
        codes = mj.quantize(x, fp8.dtype, scale)
        assert_bitwise_equal(np.asarray(codes), expected(x, scale, fp8), err_msg=str(scale))


@FORMATS
def test_finite_inputs_never_become_nan(fp8):
    x = strided_float32(65521)
    x = x[np.isfinite(x)]
    for scale in SCALES:
        if scale is None or np.isfinite(scale):
            assert not np.isnan(
                np.asarray(mj.quantize(x, fp8.dtype, scale)).astype(np.float32)
            ).any()


def test_products_of_float32_bits_are_rounded_once():
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 1 << 32, (2, 200_000), dtype=np.uint32)
    # 12 times 13 significant bits: every second product is a tie or one bit away from it.
    x[::2] &= np.uint32(0xFFFFF000 | 0x800)
    y[::2] &= np.uint32(0xFFFFF800)
    edges = np.array([0, 1, 2, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x3F800000])
    edges = np.concatenate([edges, edges | 0x80000000]).astype(np.uint32)
    x = np.concatenate([x, np.repeat(edges, len(edges))])
    y = np.concatenate([y, np.tile(edges, len(edges))])
    product = rn32_product(x.view(np.float32), y.view(np.float32))
    bits = np.where(np.isnan(product), np.uint32(0x7FFFFFFF), product.view(np.uint32))
    assert_bitwise_equal(np.asarray(multiply_float32(jnp.asarray(x), jnp.asarray(y))), bits)
    assert_bitwise_equal(np.asarray(jax.jit(multiply_float32)(x, y)), bits)


def test_the_last_bit_of_a_product_decides_a_tie():
    """The significands 0x800C3D and 0xFFEB15: the product is a tie but for its very last bit."""
    x, y = (np.array([bits], np.uint32) for bits in (0x3F800C3D, 0x3FFFEB15))
    expected = (x.view(np.float32) * y.view(np.float32)).view(np.uint32)
    np.testing.assert_array_equal(multiply_float32(jnp.asarray(x), jnp.asarray(y)), expected)


def test_products_against_fractions():
    """The oracle above is right: subnormal results and ties of exact rational products."""
    rng = np.random.default_rng(2)
    x = rng.integers(1, 0x7F800000, 300, dtype=np.uint32).view(np.float32)
    y = rng.integers(1, 0x40000000, 300, dtype=np.uint32).view(np.float32)
    for a, b, product in zip(x, y, rn32_product(x, y), strict=True):
        exact = Fraction(float(a)) * Fraction(float(b))
        if not np.isfinite(product):
            assert exact >= Fraction(2) ** 128 - Fraction(2) ** 103
            continue
        low = np.nextafter(product, np.float32(0), dtype=np.float32)
        high = np.nextafter(product, np.float32(np.inf), dtype=np.float32)
        error = abs(Fraction(float(product)) - exact)
        assert error <= abs(Fraction(float(low)) - exact)
        assert not np.isfinite(high) or error <= abs(Fraction(float(high)) - exact)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16], ids=["bfloat16", "float16"])
def test_widening_to_float32_bits(dtype):
    x = all_of(dtype)
    with np.errstate(invalid="ignore"):  # signalling NaN
        keep = ~np.isnan(x)
    bits = np.asarray(jax.jit(float32_bits)(x))
    assert_bitwise_equal(bits[keep], x[keep].astype(np.float32).view(np.uint32))
    assert np.isnan(bits[~keep].view(np.float32)).all()


@FORMATS
def test_transformations_give_the_same_bits(fp8):
    x = strided_float32(4_194_301)[:1024].reshape(32, 32)
    scale = strided_float32(134_217_689)[:32].reshape(32, 1)
    want = expected(x, scale, fp8)
    quantize = lambda x, scale: mj.quantize(x, fp8.dtype, scale)  # noqa: E731
    assert_bitwise_equal(np.asarray(quantize(x, scale)), want)
    assert_bitwise_equal(np.asarray(jax.jit(quantize)(x, scale)), want)
    assert_bitwise_equal(np.asarray(jax.vmap(quantize)(x, scale)), want)
    assert_bitwise_equal(np.asarray(jax.vmap(jax.jit(quantize))(x, scale)), want)
    twice = jax.jit(jax.vmap(jax.vmap(quantize, (0, None))))
    assert_bitwise_equal(np.asarray(twice(x, scale[:, 0])), want)
    _, scanned = jax.lax.scan(lambda c, xs: (c, quantize(*xs)), 0, (x, scale))
    assert_bitwise_equal(np.asarray(scanned), want)
    with jax.enable_x64(True):
        assert_bitwise_equal(np.asarray(jax.jit(quantize)(x, scale)), want)


def test_python_float_scales_are_float32_rounded_once():
    x = np.full((), 2.0**127, np.float32)
    scale = 1.5 * 2.0**-148  # a tie between two subnormal float32: the even one
    assert_bitwise_equal(
        np.asarray(mj.quantize(x, "e5m2", scale)),
        np.asarray(mj.quantize(x, "e5m2", np.float32(scale))),
    )
    assert float(mj.quantize(np.float32(1e-30), "e4m3", 1e300)) == 448.0


@FORMATS
def test_derivatives_are_refused(fp8):
    def loss(x):
        return mj.quantize(x, fp8.dtype, 2.0).astype(jnp.float32).sum()

    x = jnp.ones(4)
    for derivative in (
        jax.grad(loss),
        jax.jit(jax.grad(loss)),
        lambda x: jax.jvp(loss, (x,), (x,)),
    ):
        with pytest.raises(
            mj.errors.UnsupportedFeatureError, match=r"quantize.*Ways out:.*stop_gradient"
        ):
            derivative(x)
    stopped = jax.grad(lambda x: loss(jax.lax.stop_gradient(x)) + x.sum())(x)
    assert_bitwise_equal(np.asarray(stopped), np.ones(4, np.float32))


def test_refusals():
    x = np.ones((4, 8), np.float32)
    with pytest.raises(
        TypeError, match=r"quantize: x must be float32.*float64 of shape \(4, 8\).*Ways"
    ):
        mj.quantize(x.astype(np.float64), "e4m3")
    with pytest.raises(
        TypeError, match=r"quantize: x must be a jax or numpy array, got list.*Ways"
    ):
        mj.quantize([1.0], "e4m3")
    with pytest.raises(TypeError, match=r"quantize: dtype must be .*got float16.*Ways"):
        mj.quantize(x, np.float16)
    with pytest.raises(TypeError, match=r"quantize: scale must be float32, got float64 of shape"):
        mj.quantize(x, "e4m3", np.ones((4, 1)))
    with pytest.raises(TypeError, match=r"quantize: scale must be .*got 2 of type int"):
        mj.quantize(x, "e4m3", 2)
    with pytest.raises(ValueError, match=r"quantize: scale must broadcast.*\(4,\).*\(4, 8\).*Ways"):
        mj.quantize(x, "e4m3", np.ones(4, np.float32))
