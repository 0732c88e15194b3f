"""GEMMs whose bits an unguarded floating-point environment would change, and their digest."""

import functools
import hashlib

import jax
import numpy as np
from gemms import finite_codes, gemm

from mmaemu_jax.accumulate import AccumulationPlan
from mmaemu_jax.epilogue import OUTPUT_DTYPES
from mmaemu_jax.formats import E5M2
from mmaemu_jax.testing import hard_scales

SCALES = np.array(hard_scales(), np.uint32).view(np.float32)
M, N, K = 2, 3, 48

#: scale_a by rows, scale_b by columns; scale_result is another one in every row and column.
SCALE_A, SCALE_B = SCALES[:, None], SCALES[None, :]
SCALE_RESULT = np.stack([np.roll(SCALES, i) for i in range(len(SCALES))])
A, B = finite_codes(1, (1, 1, M, K)), finite_codes(2, (1, 1, N, K), E5M2)

#: Initial accumulators below float32's normal range, and next to it.
TINY = np.array([1, 2, 0x3FFF, 0x400000, 0x7FFFFF, 0x800000, 0x800001], np.uint32)
TINY_C = np.concatenate([TINY, TINY | 0x80000000])[:, None, None].view(np.float32)


def scaled(backend: str, out_dtype, scale_a=SCALE_A, scale_result=SCALE_RESULT) -> jax.Array:
    """Every pair of hard scales, with scale_result for float8: [S, S, M, N]."""
    if np.dtype(out_dtype).itemsize > 1:
        scale_result = None
    return gemm(A, B, scale_a, SCALE_B, scale_result, out_dtype=out_dtype, backend=backend)


def tiny_accumulators(backend: str) -> jax.Array:
    """Nothing is added to tiny c in the first row, the smallest products in the second."""
    a, b = np.zeros((1, 2, K), np.uint8), np.full((1, 1, K), 0x81, np.uint8)
    a[:, 1] = 1
    a, b = (x.view(E5M2.dtype) for x in (a, b))
    c = np.broadcast_to(TINY_C, (len(TINY_C), 2, 1))
    return gemm(a, b, c=c, backend=backend)


def large(backend: str) -> jax.Array:
    """Several tiles for every thread, ragged on all sides."""
    a, b = finite_codes(3, (300, 257)), finite_codes(4, (520, 257))
    plan = AccumulationPlan(chunk_k=128)
    return gemm(a, b, np.float32(1e-30), np.float32(-1e-12), plan=plan, backend=backend)


def kernel_programs() -> list:
    """Functions without arguments."""
    outputs = [functools.partial(scaled, "auto", dtype) for dtype in OUTPUT_DTYPES]
    return [
        *outputs,
        functools.partial(tiny_accumulators, "auto"),
        functools.partial(large, "auto"),
    ]


def reference_programs() -> list:
    """Fewer: each costs a second to compile."""
    outputs = [functools.partial(scaled, "reference", dtype) for dtype in OUTPUT_DTYPES[-1:]]
    return [*outputs, functools.partial(tiny_accumulators, "reference")]


def digest(programs: list) -> str:
    """One hash of the bits that the programs return, jitted."""
    hashed = hashlib.sha256()
    for program in programs:
        hashed.update(np.asarray(jax.jit(program)()).tobytes())
    return hashed.hexdigest()
