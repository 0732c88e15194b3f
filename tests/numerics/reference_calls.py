"""Calls of the float64 reference and of the fractions oracle, bits in and bits out."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import oracle_fractions

from mmaemu_jax.accumulate import ONE_CHAIN
from mmaemu_jax.reference import gemm
from mmaemu_jax.testing.cases import operands

ONE = 0x3F800000
FLOAT32 = np.dtype(np.float32)

_jitted = partial(jax.jit, static_argnames=("model", "plan", "out_dtype"))(gemm)


def reference_bits(
    a,
    b,
    fmt_a,
    fmt_b,
    scale_a=ONE,
    scale_b=ONE,
    scale_result=None,
    c=None,
    *,
    model,
    plan=ONE_CHAIN,
    out_dtype=FLOAT32,
    run=_jitted,
):
    """Output bits of codes ``[*L, M, K]`` and ``[*L, N, K]``; scales and c are float32 bits."""

    def float32(bits):
        return None if bits is None else np.asarray(bits, np.uint32).view(np.float32)

    def scale(bits):
        one_per_matrix = [1] * (a.ndim - 2)
        return float32(bits if bits is None or np.ndim(bits) else np.full(one_per_matrix, bits))

    out = run(
        jnp.asarray(a.view(fmt_a.dtype)),
        jnp.asarray(b.view(fmt_b.dtype)),
        *(scale(x) for x in (scale_a, scale_b, scale_result)),
        float32(c),
        model=model,
        plan=plan,
        out_dtype=np.dtype(out_dtype),
    )
    assert out.dtype == out_dtype
    return np.asarray(out).view(f"uint{8 * out.dtype.itemsize}")


def oracle_bits(
    a,
    b,
    fmt_a,
    fmt_b,
    scale_a=ONE,
    scale_b=ONE,
    scale_result=None,
    c=None,
    *,
    model,
    plan=ONE_CHAIN,
    out_dtype=FLOAT32,
):
    """The same by exact fractions; one leading batch dimension or none, scales without one."""
    if a.ndim == 2:
        return oracle_fractions.gemm_bits(
            a, b, fmt_a, fmt_b, scale_a, scale_b, scale_result, c, model, plan, out_dtype
        )
    rest = fmt_a, fmt_b, scale_a, scale_b, scale_result
    each_c = [None] * len(a) if c is None else c
    settings = {"model": model, "plan": plan, "out_dtype": out_dtype}
    return np.stack(
        [oracle_bits(x, y, *rest, z, **settings) for x, y, z in zip(a, b, each_c, strict=True)]
    )


def stacked(families, fmt_a, fmt_b, m, n, k, seed=0, finite=True):
    """Operands of several families as one batch: one compilation serves them all."""
    pairs = [operands(f, fmt_a, fmt_b, m, n, k, seed, finite) for f in families]
    a, b = zip(*pairs, strict=True)
    return np.stack(a), np.stack(b)


def codes(fmt, values):
    """Codes of values that ``fmt`` holds exactly."""
    values = np.asarray(values, np.float32)
    encoded = values.astype(fmt.dtype)
    assert (encoded.astype(np.float32) == values).all()
    return encoded.view(np.uint8)


def bits(value):
    """float32 bits of a float that float32 holds exactly."""
    assert float(np.float32(value)) == value or value != value
    return int(np.float32(value).view(np.uint32))
