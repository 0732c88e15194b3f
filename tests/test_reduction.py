"""Sums in rank order on bit patterns, against numpy, whose float32 addition is IEEE's."""

import itertools

import jax
import ml_dtypes
import numpy as np
import pytest

from mmaemu_jax.reduction import add_float32, sum_in_order
from mmaemu_jax.testing import assert_bitwise_equal

F32, BF16, F16 = (np.dtype(t) for t in (np.float32, ml_dtypes.bfloat16, np.float16))
SPECIAL = np.array(
    [0, 1, 0x7FFFFF, 0x800000, 0x33800000, 0x3F800000, 0x3F800001, 0x7F7FFFFF, 0x7F800000,
     0x7FC00001, 0x7F800001], np.uint32,
)  # fmt: skip
SPECIAL = np.concatenate([SPECIAL, SPECIAL | np.uint32(1 << 31)])


def bit_patterns(seed: int, count: int) -> np.ndarray:
    """float32 bits: any, subnormal and small, ordinary."""
    random = np.random.default_rng(seed)
    anything = random.integers(0, 1 << 32, count, dtype=np.uint32)
    ordinary = random.normal(size=count).astype(np.float32).view(np.uint32)
    kinds = [anything, anything & np.uint32(0x83FFFFFF), anything & 0x807FFFFF, ordinary]
    return np.choose(random.integers(0, len(kinds), count), kinds)


def pairs() -> tuple[np.ndarray, np.ndarray]:
    """Every pair of special values, random pairs, and near cancellations."""
    x, y = bit_patterns(1, 60000), bit_patterns(2, 60000)
    near = (x ^ np.uint32(1 << 31)) + np.random.default_rng(3).integers(-4, 5, 60000).astype("u4")
    y = np.where(np.arange(60000) % 3 == 0, near, y)
    special = np.array(list(itertools.product(SPECIAL, SPECIAL)), np.uint32).T
    return np.concatenate([x, special[0]]), np.concatenate([y, special[1]])


def ieee_sum(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """float32 bits of x + y, NaN canonical (R19)."""
    with np.errstate(all="ignore"):
        total = x.view(np.float32) + y.view(np.float32)
    return np.where(np.isnan(total), np.uint32(0x7FFFFFFF), total.view(np.uint32))


def test_addition():
    x, y = pairs()
    assert_bitwise_equal(jax.jit(add_float32)(x, y), ieee_sum(x, y))


def values(dtype: np.dtype, parts: int) -> list[np.ndarray]:
    """Finite values whose partial sums stay finite and numbers, subnormals among them."""
    random = np.random.default_rng(4)
    drawn = random.normal(size=(parts, 5000)) * 2.0 ** random.integers(-20, 3, (1, 5000))
    tiny = np.finfo(F32).tiny if dtype != F16 else 2.0**-14
    drawn[:, ::3] = random.normal(size=drawn[:, ::3].shape) * tiny
    return list(drawn.astype(np.float32).astype(dtype))


def rounded(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return x.astype(np.float32).astype(dtype).astype(np.float32)


@pytest.mark.parametrize("parts", [1, 2, 5])
@pytest.mark.parametrize("reduce_dtype", [F32, BF16], ids=lambda d: d.name)
@pytest.mark.parametrize("dtype", [F32, BF16, F16], ids=lambda d: d.name)
def test_sum_in_order(dtype, reduce_dtype, parts):
    terms = values(dtype, parts)
    total = rounded(terms[0], reduce_dtype)
    for term in terms[1:]:
        total = rounded(total + rounded(term, reduce_dtype), reduce_dtype)
    y = sum_in_order(np.stack(terms), reduce_dtype)
    assert_bitwise_equal(y, total.astype(dtype))


def test_the_order_counts():
    terms = np.float32([1, 2**24, 1, -(2**24)])
    assert sum_in_order(terms, F32) == 0
    assert sum_in_order(terms[[0, 2, 1, 3]], F32) == 2


@pytest.mark.parametrize("dtype", [F32, BF16, F16], ids=lambda d: d.name)
def test_not_a_number_and_infinity(dtype):
    infinity, nan, one = (np.array(x, dtype) for x in (np.inf, np.nan, 1))
    assert_bitwise_equal(sum_in_order(np.stack([one, infinity, one]), F32), infinity)
    for terms in ([one, -nan, one], [infinity, one, -infinity]):
        bits = np.asarray(sum_in_order(np.stack(terms), F32)).view(f"u{dtype.itemsize}")
        assert bits == (0x7FFFFFFF if dtype == F32 else 0x7FFF)


@pytest.mark.parametrize("dtype", [BF16, F16], ids=lambda d: d.name)
def test_not_a_number_in_large_odd_arrays(dtype):
    """Where XLA:CPU's code for bfloat16 was seen to rewrite NaN."""
    y = sum_in_order(np.full((3, 53361), np.nan, dtype), F32)
    assert np.unique(np.asarray(y).view(np.uint16)) == 0x7FFF
