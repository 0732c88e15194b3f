"""Every float32 through the output roundings (R17 to R19) of every backend.

With K = 0 and unit scales the result is the epilogue of the initial accumulator alone, so a row of
c can hold any float32. CI takes every 1009th of the 2^32, prime so that no bit is left out; all of
them take some minutes per dtype: ``pytest -m exhaustive tests/test_rounding.py``.
"""

import functools
import time

import jax
import ml_dtypes
import numpy as np
import pytest
from gemms import gemm
from implementations import jax_backends
from oracle_rounding import unscaled_epilogue

from mmaemu_jax.epilogue import OUTPUT_DTYPES
from mmaemu_jax.testing import assert_bitwise_equal

STRIDE = 1009
COLUMNS = 4096
BACKENDS = jax_backends()


def outputs(bits: np.ndarray, out_dtype: np.dtype, backend: str) -> np.ndarray:
    """The epilogue of a multiple of COLUMNS float32, as bits of the output dtype."""
    c = bits.view(np.float32).reshape(-1, COLUMNS)
    a, b = (np.zeros((n, 0), ml_dtypes.float8_e4m3fn) for n in c.shape)
    y = jax.jit(lambda c: gemm(a, b, c=c, out_dtype=out_dtype, backend=backend))(c)
    return np.asarray(y).view(f"u{out_dtype.itemsize}").reshape(-1)


def check(bits: np.ndarray, desired: np.ndarray, out_dtype: np.dtype, backend: str) -> None:
    actual = outputs(bits, out_dtype, backend)
    if not np.array_equal(actual, desired):  # the report is for people, and slow
        wrong = np.flatnonzero(actual != desired)
        inputs = ", ".join(f"0x{x:08x}" for x in bits[wrong[:5]])
        first = (x[wrong].view(out_dtype) for x in (actual, desired))
        assert_bitwise_equal(*first, err_msg=f"Inputs {inputs}, ...")


def strided() -> np.ndarray:
    """Every STRIDE-th float32."""
    return np.arange(0, 1 << 32, STRIDE, dtype=np.uint32)


def midpoints() -> np.ndarray:
    """On and next to every value and midpoint of the narrow formats: at least 2^12 ulps apart."""
    steps = np.arange(0, 1 << 32, 1 << 12, dtype=np.uint32)
    return (steps[:, None] + np.array([-1, 0, 1]).astype(np.uint32)).reshape(-1)


@functools.cache
def sample(choose) -> np.ndarray:
    """Filled up to whole rows."""
    bits = choose()
    return np.resize(bits, -(-len(bits) // COLUMNS) * COLUMNS)


@functools.cache
def desired(choose, out_dtype: np.dtype) -> np.ndarray:
    return unscaled_epilogue(sample(choose), out_dtype)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("out_dtype", OUTPUT_DTYPES, ids=str)
@pytest.mark.parametrize("choose", [strided, midpoints])
def test_a_sample(choose, out_dtype, backend):
    check(sample(choose), desired(choose, out_dtype), out_dtype, backend)


def test_the_oracle_itself():
    """Values one can check by hand: tie to even, overflow, saturation, -0 and NaN (R17 to R19)."""
    tie, above = 0x3F880000, 0x3F880001  # 1 + 2^-4, and the next float32
    large = [0x477FF000, 0x477FEFFF, 0x7F800000, 0xFF800000]  # 65520, just below, Inf, -Inf
    bits = np.array([tie, above, *large, 0x80000000, 0x80000001, 0xFFC00001], np.uint32)
    for dtype, codes in {
        ml_dtypes.float8_e4m3fn: [0x38, 0x39, 0x7E, 0x7E, 0x7E, 0xFE, 0, 0x80, 0x7F],
        ml_dtypes.float8_e5m2: [0x3C, 0x3C, 0x7B, 0x7B, 0x7B, 0xFB, 0, 0x80, 0x7F],
        np.float16: [0x3C40, 0x3C40, 0x7C00, 0x7BFF, 0x7C00, 0xFC00, 0, 0x8000, 0x7FFF],
    }.items():
        assert unscaled_epilogue(bits, np.dtype(dtype)).tolist() == codes


@pytest.mark.exhaustive
@pytest.mark.parametrize("out_dtype", OUTPUT_DTYPES, ids=str)
def test_every_float32(out_dtype, capsys):
    step = 1 << 24
    started = time.monotonic()
    for first in range(0, 1 << 32, step):
        bits = np.arange(first, first + step, dtype=np.uint32)
        codes = unscaled_epilogue(bits, out_dtype)
        for backend in BACKENDS:
            check(bits, codes, out_dtype, backend)
        with capsys.disabled():
            done, seconds = (first + step) / (1 << 32), time.monotonic() - started
            print(f"\r{out_dtype}: {done:4.0%} in {seconds:.0f} s", end="", flush=True)
