"""quantize on drawn values and scales: exact fractions, order, and what it does not depend on."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import oracle_fractions
import strategies as draw
from hypothesis import given
from hypothesis import strategies as st

import mmaemu_jax as mj
from mmaemu_jax.formats import FORMATS
from mmaemu_jax.testing import assert_bitwise_equal

#: One shape, so that each format and dtype compiles once.
SIZE = 48
F32 = np.dtype(np.float32)
formats = st.sampled_from(FORMATS)


@st.composite
def values(draw_from, dtype=F32) -> np.ndarray:
    """Bit patterns of ``dtype``: any; within reach of FP8; or of few exponents, so that many are
    neighbours."""
    size = SIZE * dtype.itemsize
    bits = np.frombuffer(draw_from(st.binary(min_size=size, max_size=size)), f"u{dtype.itemsize}")
    if dtype == F32:  # 2^-15 to 2^16, 2^-3 to 2
        free, fixed = draw_from(st.sampled_from(((~0, 0), (0x87, 0x38), (0x81, 0x3E))))
        bits = bits & np.uint32(free << 24 & 0xFF000000 | 0xFFFFFF) | np.uint32(fixed << 24)
    return bits.view(dtype)


def quantized(x, fmt, scale) -> np.ndarray:
    return np.asarray(mj.quantize(x, fmt.dtype, scale))


def saturated(bits: int, fmt) -> int:
    """R18's rounding to FP8 of one float32."""
    value = oracle_fractions.value_of_f32(bits)
    if value == value:
        limit = Fraction(fmt.max_finite)
        value = max(min(value, limit), -limit)
    return oracle_fractions.round_to(value, fmt.dtype, negative_zero=bool(bits >> 31))


@given(formats, values(), draw.scales | draw.moderate_scales)
def test_exact_fractions(fmt, x, scale):
    scale_bits = int(scale.view(np.uint32))
    products = [oracle_fractions.multiply_f32(int(v), scale_bits) for v in x.view(np.uint32)]
    desired = np.array([saturated(bits, fmt) for bits in products], np.uint8)
    assert_bitwise_equal(quantized(x, fmt, scale), desired.view(fmt.dtype))


@given(formats, values(), draw.scales | draw.moderate_scales)
def test_order_and_range(fmt, x, scale):
    """Monotone, saturated, and NaN only for NaN (or Inf times 0)."""
    with np.errstate(all="ignore"):
        x = np.where(np.isnan(x), np.float32(1), x)
        scale = np.float32(1) if np.isnan(scale) else scale
        x = np.sort(x if np.isfinite(scale) else np.where(x == 0, np.float32(1), x))
        x = x[np.isfinite(x)] if scale == 0 else x
    codes = quantized(np.resize(x, SIZE), fmt, scale)[: len(x)].astype(np.float64)
    assert not np.isnan(codes).any()
    assert (np.abs(codes) <= fmt.max_finite).all()
    assert (np.diff(codes) * (-1 if np.signbit(scale) else 1) >= 0).all()


@given(formats, st.data(), st.integers(-100, 100))
def test_what_fp8_holds_comes_back(fmt, data, power):
    """Also divided by a power of two that the scale puts back."""
    codes = data.draw(draw.free_codes(fmt, (SIZE,)))
    x = np.ldexp(codes.astype(np.float32), -power)
    assert_bitwise_equal(quantized(x, fmt, np.float32(2.0**power)), codes)


@given(formats, st.sampled_from((ml_dtypes.bfloat16, np.float16)), st.data(), draw.scales)
def test_sixteen_bits_are_widened_first(fmt, dtype, data, scale):
    x = data.draw(values(np.dtype(dtype)))
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float32)
    assert_bitwise_equal(quantized(x, fmt, scale), quantized(wide, fmt, scale))


@given(formats, values(), draw.scales)
def test_signs(fmt, x, scale):
    """R18 is symmetric: the sign of the value or of the scale is that of the code; NaN is 0x7F."""
    codes = quantized(x, fmt, scale)
    flipped = np.where(codes.view(np.uint8) == 0x7F, 0x7F, codes.view(np.uint8) ^ 0x80)
    desired = flipped.astype(np.uint8).view(fmt.dtype)
    assert_bitwise_equal(quantized(-x, fmt, scale), desired)
    assert_bitwise_equal(quantized(x, fmt, -scale), desired)
