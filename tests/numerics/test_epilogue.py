"""Scales, roundings and saturation (R16 to R19), and the float64 blocks they are made of."""

import math
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import oracle_fractions as oracle
import pytest
from reference_calls import FLOAT32, ONE, bits, oracle_bits, reference_bits

from mmaemu_jax.epilogue import OUTPUT_DTYPES
from mmaemu_jax.formats import E4M3, E5M2, FORMATS, format_of
from mmaemu_jax.instruction import HOPPER
from mmaemu_jax.reference import _f64, epilogue
from mmaemu_jax.testing.cases import hard_scales

#: Accumulators of 14 and 24 bits, specials, and magnitudes from end to end.
ACCUMULATORS = np.array(
    [
        *(0x00000000, 0x80000000, 0x3F800000, 0xBF810000, 0x3FC00400, 0x4B7FFC00, 0xCB7FFFFF),
        *(0x00000200, 0x807FFE00, 0x1F800400, 0x7F7FFC00, 0x7F800000, 0xFF800000, 0x7FFFFFFF),
    ],
    np.uint32,
)
SCALES = np.array(hard_scales(), np.uint32)
#: For float8 outputs: none, and some that overflow, underflow or flip the sign.
SCALE_RESULTS = [None, 0xBF800000, 0x00000001, 0x7F7FFFFF, 0x7F800000, 0x38D1B717]


@partial(jax.jit, static_argnames="out_dtype")
def run_epilogue(acc, scale_a, scale_b, scale_result, *, out_dtype):
    with _f64.x64():
        value = _f64.f32_value(acc)
        return epilogue.apply(value, scale_a, scale_b, scale_result, out_dtype=out_dtype)


@pytest.mark.parametrize("out_dtype", OUTPUT_DTYPES, ids=lambda d: d.name)
def test_every_pair_of_hard_scales(out_dtype):
    a, b = (x.reshape(-1) for x in np.meshgrid(SCALES, SCALES))
    for i, scale_result in enumerate(SCALE_RESULTS if format_of(out_dtype) else [None]):
        acc = np.roll(np.resize(ACCUMULATORS, a.shape), i)
        full = None if scale_result is None else np.full(a.shape, scale_result, np.uint32)
        got = run_epilogue(acc, a, b, full, out_dtype=out_dtype)
        expected = [
            oracle.epilogue_bits(oracle.value_of_f32(x), y, z, scale_result, out_dtype)
            for x, y, z in zip(acc.tolist(), a.tolist(), b.tolist(), strict=True)
        ]
        np.testing.assert_array_equal(got, np.array(expected, got.dtype))


@partial(jax.jit, static_argnames="dtype")
def rounded(y, dtype):
    fmt = format_of(dtype)
    return epilogue.saturate_to_fp8(y, fmt) if fmt else epilogue.round_to_half(y, dtype)


def spread(count):
    """float32 patterns over the whole range, and those around every FP8 rounding boundary."""
    boundaries = []
    for fmt in FORMATS:
        finite = np.sort(fmt.values[:128][np.isfinite(fmt.values[:128])])
        middles = ((finite[1:] + finite[:-1]) / 2).astype(np.float32).view(np.uint32)
        boundaries += [middles + np.uint32(d) for d in (0, 1, 2**32 - 1)]
    positive = np.concatenate([*boundaries, finite.astype(np.float32).view(np.uint32)])
    stride = np.arange(count, dtype=np.uint64) * 42949673 % 2**32
    return np.concatenate([positive, positive | np.uint32(1 << 31), stride.astype(np.uint32)])


@pytest.mark.parametrize("dtype", OUTPUT_DTYPES[1:], ids=lambda d: d.name)
def test_rounding_to_narrow_formats(dtype):
    y, fmt = spread(20_000), format_of(dtype)
    got = rounded(y, dtype)
    values = [oracle.value_of_f32(x) for x in y.tolist()]
    if fmt:
        values = [v if v != v else max(-fmt.max_finite, min(fmt.max_finite, v)) for v in values]
    negative = (y >> 31).astype(bool).tolist()
    expected = [
        oracle.round_to(v if v != v else Fraction(v) if abs(v) != oracle.INF else v, dtype, s)
        for v, s in zip(values, negative, strict=True)
    ]
    np.testing.assert_array_equal(got, np.array(expected, got.dtype))


@pytest.mark.parametrize(("dtype", "shift"), [(OUTPUT_DTYPES[1], 16), (OUTPUT_DTYPES[2], 13)])
def test_a_tie_goes_to_even(dtype, shift):
    half = np.uint32(1 << (shift - 1))
    y = np.uint32(ONE) + np.array([half, 3 * half, half + 1, half - 1], np.uint32)
    one = {16: 0x3F80, 13: 0x3C00}[shift]
    np.testing.assert_array_equal(rounded(y, dtype), [one, one + 2, one + 1, one])


#: By output dtype: float32 bits beside ties, subnormal ones too, and a NaN; what becomes of them.
LAST_BITS = {
    "bfloat16": {
        **{0x3F807FFF: 0x3F80, 0x3F808000: 0x3F80, 0x3F808001: 0x3F81, 0x3F818000: 0x3F82},
        **{0x00008000: 0x0000, 0x00008001: 0x0001, 0x80018000: 0x8002, 0x7F800001: 0x7FFF},
    },
    "float16": {
        **{0x3F800FFF: 0x3C00, 0x3F801000: 0x3C00, 0x3F801001: 0x3C01, 0x3F803000: 0x3C02},
        **{0x33000000: 0x0000, 0x33000001: 0x0001, 0xB3C00000: 0x8002, 0xFF800001: 0x7FFF},
    },
    "float8_e4m3fn": {
        **{0x3F87FFFF: 0x38, 0x3F880000: 0x38, 0x3F880001: 0x39, 0x3F980000: 0x3A},
        **{0x3A800000: 0x00, 0x3A800001: 0x01, 0xBB400000: 0x82, 0xFF800001: 0x7F},
    },
    "float8_e5m2": {
        **{0x3F8FFFFF: 0x3C, 0x3F900000: 0x3C, 0x3F900001: 0x3D, 0x3FB00000: 0x3E},
        **{0x37000000: 0x00, 0x37000001: 0x01, 0xB7C00000: 0x82, 0x7F800001: 0x7F},
    },
}


@pytest.mark.parametrize("dtype", OUTPUT_DTYPES[1:], ids=lambda d: d.name)
def test_the_last_bit_of_float32_counts(dtype):
    y, expected = (np.array(x, np.uint32) for x in zip(*LAST_BITS[dtype.name].items(), strict=True))
    np.testing.assert_array_equal(rounded(y, dtype=dtype), expected)


@pytest.mark.parametrize(
    ("fmt", "largest"), [(E4M3, 0x7E), (E5M2, 0x7B)], ids=lambda v: getattr(v, "name", None)
)
def test_saturation(fmt, largest):
    values = [fmt.max_finite * 1.04, 1e30, np.inf, -np.inf, np.nan, -np.nan, fmt.max_finite]
    got = rounded(np.float32(values).view(np.uint32), fmt.dtype)
    negative = largest | 0x80
    expected = [largest, largest, largest, negative, 0x7F, 0x7F, largest]
    np.testing.assert_array_equal(got, expected)


def test_float16_overflows_to_infinity():
    y = np.float32([65519.996, 65520.0, -65520.0, 1e30]).view(np.uint32)
    got = rounded(y, np.dtype(np.float16))
    np.testing.assert_array_equal(got, [0x7BFF, 0x7C00, 0xFC00, 0x7C00])


def epilogue_of(acc, scale_a, scale_b, scale_result=None, out_dtype=FLOAT32):
    arrays = [None if x is None else np.array([x], np.uint32)
              for x in (acc, scale_a, scale_b, scale_result)]  # fmt: skip
    return np.asarray(run_epilogue(*arrays, out_dtype=np.dtype(out_dtype))).item()


def test_an_exact_zero_is_plus_zero_and_an_underflow_keeps_its_sign():
    minus_one, minus_zero, tiny = bits(-1.0), bits(-0.0), bits(2.0**-100)
    assert epilogue_of(0, ONE, minus_one) == 0
    assert epilogue_of(minus_one, minus_zero, ONE) == 0
    assert epilogue_of(bits(-(2.0**-100)), tiny, ONE) == minus_zero
    assert epilogue_of(ONE, bits(-(2.0**-75)), bits(2.0**-75)) == 0  # alpha itself underflows


def test_subnormal_scales_and_results_survive():
    assert epilogue_of(bits(2.0**14), 1, ONE) == 1 << 14
    assert epilogue_of(ONE, bits(2.0**-64), bits(2.0**-84)) == 2
    assert epilogue_of(bits(3.0), bits(2.0**-75), bits(2.0**-75)) == 0
    assert epilogue_of(bits(3.0), bits(2.0**-100), bits(2.0**-50)) == 0
    assert epilogue_of(bits(3.0), bits(2.0**-74), bits(2.0**-75)) == 3
    assert epilogue_of(bits(2.0**-149), bits(1.5), ONE) == 2  # a tie, to even


def test_alpha_is_rounded_before_it_is_used():
    scale_a, scale_b, acc = bits(1 + 2.0**-12), bits(1 + 2.0**-12), bits(2.0**12)
    assert epilogue_of(acc, scale_a, scale_b) == bits((1 + 2.0**-11) * 2.0**12)
    # acc * scale_a is exact, so another order of the scales would keep what alpha lost.
    exact = 1.5 * (1 + 2.0**-12) ** 2
    assert np.float32(exact).view(np.uint32) != epilogue_of(bits(1.5), scale_a, scale_b)


def test_a_half_output_is_rounded_twice():
    """acc * alpha just above a bfloat16 tie is that tie in float32, which then goes to even."""
    tie = 1 + Fraction(1, 2**8)
    for i in range(1, 32):
        acc = 1 + Fraction(i, 2**13)
        alpha = Fraction(math.ceil(tie / acc * 2**23), 2**23)
        if 0 < acc * alpha - tie < Fraction(1, 2**24):
            break
    operands = bits(float(acc)), bits(float(alpha)), ONE
    assert epilogue_of(*operands) == bits(float(tie))
    assert epilogue_of(*operands, out_dtype=OUTPUT_DTYPES[1]) == 0x3F80


def test_scale_result_is_for_float8_only():
    for out_dtype in OUTPUT_DTYPES:
        plain = epilogue_of(bits(3.0), ONE, ONE, None, out_dtype)
        doubled = epilogue_of(bits(3.0), ONE, ONE, bits(2.0), out_dtype)
        assert (plain != doubled) == (format_of(out_dtype) is not None)


def test_scale_result_takes_a_rounding_of_its_own_and_can_make_a_minus_zero():
    assert epilogue_of(0, ONE, ONE, bits(-1.0), E4M3.dtype) == 0x80
    assert epilogue_of(bits(2.0**100), bits(2.0**100), ONE, bits(2.0**-90), E5M2.dtype) == 0x7B
    assert epilogue_of(bits(2.0**-100), bits(2.0**-100), ONE, bits(2.0**127), E5M2.dtype) == 0


def test_a_whole_gemm_with_hard_scales():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 0x7C, (len(SCALES), 1, 16), dtype=np.uint8)
    b = rng.integers(0, 256, (len(SCALES), 2, 16), dtype=np.uint8)
    scale_b, scale_result = SCALES[::-1].copy(), np.roll(SCALES, 5)
    settings = {"model": HOPPER.model, "out_dtype": E5M2.dtype}
    got = reference_bits(a, b, E5M2, E4M3, SCALES, scale_b, scale_result, **settings)
    for i, row in enumerate(got):
        scales = (int(x[i]) for x in (SCALES, scale_b, scale_result))
        np.testing.assert_array_equal(row, oracle_bits(a[i], b[i], E5M2, E4M3, *scales, **settings))


# The float64 blocks, against numpy's IEEE float32 and float64 in the main thread.


def float64_bits(function, *arrays):
    with jax.enable_x64(True):
        return np.asarray(jax.jit(function)(*(jnp.asarray(x) for x in arrays)))


def random_float32(rng, count):
    """Bits of finite float32 with 24, 14 or 3 significant bits, over all exponents or near 1."""
    x = rng.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32)
    x &= rng.choice(np.array([0xFFFFFFFF, 0xFFFFFC00, 0xFFE00000], np.uint32), count)
    near = (x & 0x80FFFFFF) | 0x3F000000
    x = np.where(rng.random(count) < 0.7, near, x)
    return np.where((x & 0x7F800000) == 0x7F800000, 0, x).astype(np.uint32)


def test_float32_survives_the_round_trip_through_float64():
    x = np.concatenate([spread(200_000), SCALES, np.arange(1 << 12, dtype=np.uint32)])
    got = float64_bits(lambda v: _f64.f32_bits(_f64.f32_value(v)), x)
    nan = (x & 0x7FFFFFFF) > _f64.F32_INF
    np.testing.assert_array_equal(got, np.where(nan, _f64.F32_NAN, x))


def test_rounding_float64_to_float32():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2**64, 400_000, dtype=np.uint64)
    exponent = rng.integers(1023 - 160, 1023 + 130, x.size, dtype=np.uint64)
    x = (x & np.uint64(0x800FFFFFFFFFFFFF)) | (exponent << np.uint64(52))
    tie = rng.choice(np.array([1, 2**28, 2**29, 2**40], np.uint64), x.size)
    x = x // tie * tie + rng.choice(np.array([0, 1, 2**64 - 1], np.uint64), x.size)
    with np.errstate(over="ignore", under="ignore"):
        expected = x.view(np.float64).astype(np.float32).view(np.uint32)
    np.testing.assert_array_equal(float64_bits(_f64.f32_bits, x.view(np.float64)), expected)


def test_adding_float32():
    rng = np.random.default_rng(1)
    x, y = random_float32(rng, 400_000), random_float32(rng, 400_000)
    far = np.abs((x >> 23 & 0xFF).astype(int) - (y >> 23 & 0xFF).astype(int))
    assert {23, 24, 25, 26, 27, 28, 29, 200} <= set(far.tolist())

    def add(x, y):
        return _f64.f32_bits(_f64.add_f32(_f64.f32_value(x), _f64.f32_value(y)))

    with np.errstate(over="ignore"):
        total = x.view(np.float32) + y.view(np.float32)
    finite = np.isfinite(total)
    np.testing.assert_array_equal(float64_bits(add, x, y)[finite], total[finite].view(np.uint32))


def test_multiplying_float32():
    rng = np.random.default_rng(2)
    x, y = random_float32(rng, 400_000), random_float32(rng, 400_000)
    with np.errstate(over="ignore", under="ignore"):
        product = x.view(np.float32) * y.view(np.float32)
    np.testing.assert_array_equal(jax.jit(_f64.multiply_f32)(x, y), product.view(np.uint32))
