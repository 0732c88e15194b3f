"""Dots for the tests of emulate, and what a plain call and a report say of them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import mmaemu_jax as mj
from mmaemu_jax.transforms.jaxprs import walk

E4M3, E5M2, BF16, F32 = jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.bfloat16, jnp.float32
M, N, K = 16, 32, 160


def codes(seed, shape, dtype=E4M3):
    values = np.random.default_rng(seed).standard_normal(shape) * 2
    return values.astype(dtype)


A, B = codes(1, (M, K)), codes(2, (K, N))
S, T = np.float32(0.37), np.float32(1.7)


def dot(a, b, precision=None, dtype=F32):
    dims = (((a.ndim - 1,), (0,)), ((), ()))
    return lax.dot_general(a, b, dims, precision=precision, preferred_element_type=dtype)


def plain(a, b, scale_a=1.0, scale_b=1.0, *, fast=True, dtype=F32, **options):
    options = {"splitk": 1, "profile": "hopper", **options}
    scales = (np.float32(s) for s in (scale_a, scale_b))
    return mj.scaled_mm(a, b, *scales, out_dtype=dtype, use_fast_accum=fast, **options)


emulate = functools.partial(mj.emulate, splitk=1)


def only(fn, *args, **options):
    """The one GEMM of a program, nothing of which is left."""
    report = emulate(fn, **options).report(*args)
    assert report.left == ()
    (gemm,) = report.emulated
    return gemm


def reason(fn, *args, **options):
    """Why the one FP8 product of a program is left; the call warns, or raises if asked to."""
    report = emulate(fn, **options).report(*args)
    (left,) = report.left
    with pytest.warns(mj.errors.UnemulatedDotWarning, match="left to JAX"):
        emulate(fn, **options)(*args)
    with pytest.raises(mj.errors.UnsupportedFeatureError, match="cannot be emulated"):
        emulate(fn, on_unsupported="raise", **options)(*args)
    return left.reason


def equations(fn, *args):
    return [occurrence.eqn for occurrence in walk(jax.make_jaxpr(fn)(*args))]


def scaled(a, b, s, t, dtype=BF16):
    """What flax does: the product of two scales, in the output dtype."""
    return dot(a, b, dtype=dtype) * (s * t).astype(dtype)
