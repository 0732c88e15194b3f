"""Every float32 through the output roundings (R17 to R19) of every backend.

With K = 0 and unit scales the result is the epilogue of the initial accumulator alone, so a row of
c can hold any float32. CI takes every 1009th of the 2^32, prime so that no bit is left out; all of
them take minutes per dtype and backend: ``pytest -m exhaustive tests/test_rounding.py -s``.
"""

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


def check(bits: np.ndarray, out_dtype: np.dtype, backend: str) -> None:
    actual, desired = outputs(bits, out_dtype, backend), unscaled_epilogue(bits, out_dtype)
    if not np.array_equal(actual, desired):  # the report is for people, and slow
        wrong = np.flatnonzero(actual != desired)
        inputs = ", ".join(f"0x{x:08x}" for x in bits[wrong[:5]])
        first = (x[wrong].view(out_dtype) for x in (actual, desired))
        assert_bitwise_equal(*first, err_msg=f"Inputs {inputs}, ...")


@pytest.fixture(scope="module")
def strided() -> np.ndarray:
    """Every STRIDE-th bit pattern, and the last ones of both signs to fill the last row."""
    bits = np.arange(0, 1 << 32, STRIDE, dtype=np.uint32)
    missing = -len(bits) % COLUMNS
    return np.concatenate(
        [bits, np.uint32((1 << 32) - missing) + np.arange(missing, dtype=np.uint32)]
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("out_dtype", OUTPUT_DTYPES, ids=str)
def test_every_stride(out_dtype, backend, strided):
    check(strided, out_dtype, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("out_dtype", OUTPUT_DTYPES, ids=str)
def test_around_every_midpoint(out_dtype, backend):
    """The float32 next to and on every value and midpoint of the narrow formats."""
    coarse = np.arange(0, 1 << 32, 1 << 11, dtype=np.uint32)  # fp16's midpoints are 2^12 apart
    near = coarse[:, None] + np.array([-1, 0, 1], np.int64).astype(np.uint32)
    half = np.arange(0x33000000, 0x33800000 + (1 << 14), dtype=np.uint32)[:: 1 << 6]  # below 2^-24
    bits = np.concatenate([near.reshape(-1), half, half | np.uint32(0x80000000)])
    check(np.resize(bits, -(-len(bits) // COLUMNS) * COLUMNS), out_dtype, backend)


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("out_dtype", OUTPUT_DTYPES, ids=str)
def test_every_float32(out_dtype, backend, capsys):
    step = 1 << 24
    started = time.monotonic()
    for first in range(0, 1 << 32, step):
        check(np.arange(first, first + step, dtype=np.uint32), out_dtype, backend)
        with capsys.disabled():
            done, seconds = (first + step) / (1 << 32), time.monotonic() - started
            print(f"\r{out_dtype} {backend}: {done:4.0%} in {seconds:.0f} s", end="", flush=True)
