"""mmaemu_jax.testing.bits: every kind of difference is found, named, counted and quoted."""

import time

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from mmaemu_jax.testing import assert_bitwise_equal, bits_of, compare_bits, ulp_distance

FLOATS = [
    np.dtype(t)
    for t in (
        np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz,
    )
]  # fmt: skip


def f32(*bits: int) -> np.ndarray:
    return np.array(bits, np.uint32).view(np.float32)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_bits_survive_unchanged(dtype):
    uint = np.dtype(f"u{dtype.itemsize}")
    patterns = np.arange(256).astype(uint) * uint.type(np.iinfo(uint).max // 255)
    for array in (patterns.view(dtype), patterns.view(dtype).reshape(16, 16)[:, ::3]):
        np.testing.assert_array_equal(bits_of(array), array.copy().view(uint))
    if dtype != np.float64:  # JAX narrows it
        array = jnp.asarray(patterns.view(dtype))
        np.testing.assert_array_equal(bits_of(array), patterns)
    assert_bitwise_equal(patterns.view(dtype), patterns.copy().view(dtype))


@pytest.mark.parametrize("dtype", [*FLOATS, np.dtype(ml_dtypes.float8_e8m0fnu)], ids=str)
def test_ulp_distance_counts_representable_values(dtype):
    if dtype.itemsize <= 2:
        patterns = np.arange(1 << (8 * dtype.itemsize)).astype(f"u{dtype.itemsize}").view(dtype)
    else:  # the neighbourhood of zero, where the sign changes
        tiny = np.arange(100).astype(f"u{dtype.itemsize}").view(dtype)
        patterns = np.concatenate([tiny, -tiny])
    with np.errstate(invalid="ignore"):  # signalling NaN
        values = patterns.astype(np.float64)
    patterns, values = patterns[~np.isnan(values)], values[~np.isnan(values)]
    ranks = np.searchsorted(np.unique(values), values).astype(np.int64)
    order = np.random.default_rng(0).permutation(ranks.size)
    expected = np.abs(ranks - ranks[order]).astype(np.uint64)
    np.testing.assert_array_equal(ulp_distance(patterns, patterns[order]), expected)


def test_ulp_distance_of_extremes_and_integers():
    low, high = np.finfo(np.float64).min, np.finfo(np.float64).max
    assert int(ulp_distance(np.float64(low), np.float64(high))) == 2 * 0x7FEFFFFFFFFFFFFF
    a, d = np.array([-128, 5], np.int8), np.array([127, 3], np.int8)
    np.testing.assert_array_equal(ulp_distance(a, d), np.array([255, 2], np.uint64))
    assert int(ulp_distance(np.uint8(3), np.uint8(250))) == 247


def test_every_kind_is_named_and_counted():
    actual = f32(0x80000000, 0x7FC00001, 0x7FFFFFFF, 0x7F800000, 0xFF800000, 0x3F800003, 0x1, 0x5)
    desired = f32(0x00000000, 0x7FC00000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x3F800000, 0x2, 0x5)
    report = compare_bits(actual, desired, max_examples=10)
    assert report.kinds == {
        "zero sign": 1, "NaN payload": 1, "NaN versus number": 1, "Inf versus other": 2, "value": 2,
    }  # fmt: skip
    assert (report.differing, report.size, report.max_ulps) == (7, 8, 3)
    assert [m.ulps for m in report.examples] == [0, None, None, 1, 2 * 0x7F800000, 3, 1]
    first = report.examples[0]
    assert (first.index, first.actual_bits, first.desired) == ((0,), "0x80000000", "0.0")
    assert "7 of 8 elements differ (87.5 %): zero sign 1, NaN payload 1," in str(report)


@pytest.mark.parametrize("dtype", FLOATS[:5], ids=str)
def test_signalling_nan_are_data(dtype):
    info = ml_dtypes.finfo(dtype)
    inf_or_max = bits_of(np.array(np.inf, dtype) if info.bits > 8 else info.max.astype(dtype))
    signalling, quiet = (inf_or_max + 1).astype(inf_or_max.dtype).view(dtype), dtype.type(np.nan)
    report = compare_bits(np.stack([signalling, dtype.type(0)]), np.stack([quiet, signalling]))
    payloads = int(bits_of(signalling) != bits_of(quiet))
    assert report.kinds["NaN payload"] == payloads
    assert report.kinds["NaN versus number"] == 1
    assert "nan" in str(report)


def test_nan_any_forgives_payloads_only():
    actual, desired = f32(0x7FC00001, 0xFFFFFFFF, 0x0), f32(0x7FFFFFFF, 0x7FC00000, 0x0)
    assert_bitwise_equal(actual, desired, nan="any")
    with pytest.raises(AssertionError, match="NaN payload 2"):
        assert_bitwise_equal(actual, desired)
    with pytest.raises(AssertionError, match="NaN versus number 1"):
        assert_bitwise_equal(actual[:1], f32(0x0), nan="any")
    with pytest.raises(ValueError, match="nan must be"):
        compare_bits(actual, desired, nan="equal")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_one_flipped_bit_is_found(dtype):
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 256, (7, 5 * dtype.itemsize), np.uint8).view(f"u{dtype.itemsize}")
    for bit in range(8 * dtype.itemsize):
        flipped = bits.copy()
        flipped[3, 2] ^= flipped.dtype.type(1 << bit)
        with pytest.raises(AssertionError, match=r"1 of 35 elements differ") as caught:
            assert_bitwise_equal(flipped.view(dtype), bits.view(dtype), err_msg="flipped")
        assert "(3, 2)" in str(caught.value)
        assert str(caught.value).startswith("flipped\n")


def test_message_quotes_few_and_counts_the_rest():
    zeros = np.zeros((2, 50), ml_dtypes.bfloat16)
    negative = np.full((2, 50), -0.0, ml_dtypes.bfloat16)
    with pytest.raises(AssertionError, match=r"\.\.\. and 97 more") as caught:
        assert_bitwise_equal(negative, zeros, max_examples=3)
    text = str(caught.value)
    assert text.count("zero sign") == 4  # the count and three examples
    assert "(0, 2)" in text
    assert "0x8000" in text


def test_dtype_and_shape_come_first():
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(AssertionError, match=r"actual float32\[2, 3\], desired bfloat16\[2, 3\]"):
        assert_bitwise_equal(x, x.astype(ml_dtypes.bfloat16))
    with pytest.raises(AssertionError, match=r"actual float32\[2, 3\], desired float32\[3, 2\]"):
        assert_bitwise_equal(jnp.asarray(x), x.reshape(3, 2))
    with pytest.raises(TypeError, match="dtypes differ"):
        compare_bits(x, x.astype(np.float64))
    with pytest.raises(ValueError, match="shapes differ"):
        compare_bits(x, x[0])


def test_pytrees_report_the_key_path():
    tree = {"w": [jnp.zeros(3), jnp.ones(2, jnp.bfloat16)], "n": 3}
    assert_bitwise_equal(tree, jax.tree.map(np.asarray, tree))
    changed = {"w": [jnp.zeros(3), jnp.ones(2, jnp.bfloat16).at[1].set(2)], "n": 3}
    with pytest.raises(AssertionError, match=r"At \['w'\]\[1\]: bfloat16\[2\]: 1 of 2"):
        assert_bitwise_equal(changed, tree)
    with pytest.raises(AssertionError, match="Tree structures differ"):
        assert_bitwise_equal({"w": tree["w"]}, tree)


NO_PATTERN = [np.zeros(2, complex), np.array(["a"]), np.zeros(2, ">f4"), np.zeros(1, object)]


@pytest.mark.parametrize("array", NO_PATTERN, ids=lambda array: str(array.dtype))
def test_no_bit_pattern_is_a_type_error(array):
    with pytest.raises(TypeError, match=r"bits_of: .* Ways out"):
        bits_of(array)


def test_scalars_empties_and_integers():
    assert_bitwise_equal(np.float32(1.5), jnp.float32(1.5))
    assert_bitwise_equal(jnp.zeros((0, 4)), np.zeros((0, 4), np.float32))
    assert compare_bits(np.zeros((0, 4)), np.zeros((0, 4))).size == 0
    report = compare_bits(np.array([True, False]), np.array([True, True]))
    assert report.kinds["value"] == report.max_ulps == 1
    assert compare_bits(np.int32(-1), np.int32(1)).max_ulps == 2
    with pytest.raises(AssertionError, match=r"float32\[\]: 1 of 1 .*\n.*\n.*\n  \(\) "):
        assert_bitwise_equal(np.float32(1.5), np.float32(2.5))


def test_ten_million_elements_stay_cheap():
    x = np.ones(10_000_000, np.float32)
    y = np.nextafter(x, np.float32(2))
    start = time.process_time()
    assert compare_bits(x, x).equal
    assert compare_bits(x, y).kinds["value"] == x.size
    # A loop over elements would take minutes.
    assert time.process_time() - start < 20
