"""The programs that are timed, their operands, and the check of their bits."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mmaemu_jax.api import scaled_mm
from mmaemu_jax.bench.case import BenchCase
from mmaemu_jax.explain import CallPlan, explain
from mmaemu_jax.formats import format_named
from mmaemu_jax.testing.bits import compare_bits

SCALE_A, SCALE_B = 0.5, 0.25
#: Multiply-adds that the check may cost: the portable kernel and the reference are slow.
_CHECK_MACS = 1 << 23


def operands(case: BenchCase) -> tuple[np.ndarray, np.ndarray]:
    """Normally distributed FP8 input [M, K] and weights [N, K]; the same in every run."""
    m, n, k = case.shape
    random = np.random.default_rng(2024)
    dtypes = [_dtype(name) for name in case.formats]
    a, w = (
        random.standard_normal(shape, np.float32).astype(dtype)
        for shape, dtype in zip(((m, k), (n, k)), dtypes, strict=True)
    )
    return a, w


def stored_weights(case: BenchCase, w: np.ndarray) -> np.ndarray:
    """The weights [N, K] as the program takes them."""
    return w if case.weights == "nk" else np.ascontiguousarray(w.T)


def gemm_options(case: BenchCase, backend: str | None = None) -> dict[str, Any]:
    """What the case passes to scaled_mm besides arrays and scales."""
    return {
        "out_dtype": np.dtype(case.out_dtype),
        "use_fast_accum": case.mode.use_fast_accum,
        "profile": case.profile,
        "splitk": case.mode.split,
        "backend": case.backend if backend is None else backend,
    }


def emulated(case: BenchCase, backend: str | None = None) -> jax.stages.Wrapped:
    """A jitted scaled_mm of input and weights; the step that a trace shows."""
    options = gemm_options(case, backend)

    @jax.jit
    def bench_step(a, w):
        with jax.named_scope(case.label):
            mat2 = w.T if case.weights == "nk" else w
            return scaled_mm(a, mat2, SCALE_A, SCALE_B, **options)

    return bench_step


def float32_dot(case: BenchCase) -> jax.stages.Wrapped:
    """XLA's float32 dot of operands of the same shapes and layout."""

    @jax.jit
    def dot(a, w):
        return jnp.matmul(a, w.T if case.weights == "nk" else w)

    return dot


def plan_of(case: BenchCase) -> CallPlan:
    """What the call would do here, or why it is refused."""
    m, n, k = case.shape
    a, b = (_dtype(name) for name in case.formats)
    return explain(
        jax.ShapeDtypeStruct((m, k), a),
        jax.ShapeDtypeStruct((k, n), b),
        SCALE_A,
        SCALE_B,
        **gemm_options(case),
    )


def backend_used(case: BenchCase) -> str:
    """What the case's backend comes to here, such as "cpu:avx512"."""
    choice = plan_of(case).backend
    return case.backend if choice is None else choice.name


def check(case: BenchCase, a: np.ndarray, w: np.ndarray, result: np.ndarray) -> dict[str, Any]:
    """Compares some rows of ``result`` with those of another backend, bit for bit."""
    m, n, k = case.shape
    count = min(m, 8, max(1, _CHECK_MACS // (n * k)))
    rows = np.unique(np.linspace(0, m - 1, count).astype(int))
    backend = "reference" if backend_used(case) == "cpu:scalar" else "cpu:scalar"
    desired = emulated(case, backend)(a[rows], stored_weights(case, w))
    report = compare_bits(result[rows], np.asarray(desired), max_examples=1)
    return {
        "backend": backend,
        "rows": len(rows),
        "equal": report.equal,
        "difference": "" if report.equal else str(report),
    }


def _dtype(name: str) -> np.dtype:
    fp8 = format_named(name)
    if fp8 is None:
        raise ValueError(f"bench: formats must be e4m3 or e5m2, got {name!r}.")
    return fp8.dtype
