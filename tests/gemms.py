"""Calls of the primitive for tests: operands by seed, and every option with a default."""

import itertools

import jax
import numpy as np

from mmaemu_jax import instruction, primitive
from mmaemu_jax.accumulate import ONE_CHAIN
from mmaemu_jax.formats import E4M3, E5M2, Fp8Format

HOPPER = instruction.HOPPER.model
FORMAT_PAIRS = tuple(itertools.product((E4M3, E5M2), repeat=2))


def finite_codes(seed: int, shape: tuple[int, ...], fmt: Fp8Format = E4M3) -> np.ndarray:
    """Uniform codes of ``fmt`` without Inf and NaN, so that a result is a number."""
    codes = np.flatnonzero(np.isfinite(fmt.values)).astype(np.uint8)
    return np.random.default_rng(seed).choice(codes, shape).view(fmt.dtype)


def ordinary_scales(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """float32 of no special form, of both signs."""
    random = np.random.default_rng(seed)
    return (random.uniform(0.01, 4, shape) * random.choice([-1, 1], shape)).astype(np.float32)


def gemm(
    a,
    b,
    scale_a=None,
    scale_b=None,
    scale_result=None,
    c=None,
    *,
    model=HOPPER,
    plan=ONE_CHAIN,
    out_dtype=np.float32,
    b_layout="nk",
    backend="auto",
) -> jax.Array:
    """The primitive; scales default to one."""
    one = np.ones((1,) * (a.ndim - 2), np.float32)
    return primitive.bind(
        a,
        b,
        one if scale_a is None else scale_a,
        one if scale_b is None else scale_b,
        scale_result,
        c,
        model=model,
        plan=plan,
        out_dtype=out_dtype,
        b_layout=b_layout,
        backend=backend,
    )
