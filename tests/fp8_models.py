"""Functions with FP8 dots as people write them, for emulate: name -> (function, its arguments).

Every dot of float8 operands in them can be taken over; how many there are is part of a fixture.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.linen.fp8_ops import Fp8DirectDotGeneralOp, Fp8DotGeneralOp, Fp8Einsum
from jax import lax

E4M3, E5M2, BF16 = jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.bfloat16
BATCH, LENGTH, WIDTH = 2, 16, 32


def normal(seed, shape, dtype=BF16):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


X = normal(0, (BATCH, LENGTH, WIDTH))


class DenseModel(nn.Module):
    """Two flax layers whose matrix products are flax's own FP8 op."""

    @nn.compact
    def __call__(self, x):
        dense = functools.partial(nn.Dense, dtype=BF16, dot_general_cls=Fp8DirectDotGeneralOp)
        return dense(WIDTH, use_bias=False)(nn.relu(dense(2 * WIDTH)(x)))


class EinsumModel(nn.Module):
    """flax's FP8 einsum, as in attention projections."""

    @nn.compact
    def __call__(self, x):
        w = self.param("w", nn.initializers.normal(1.0), (WIDTH, 2, 16))
        return Fp8Einsum()("bsd,dhk->bshk", x, w.astype(BF16), preferred_element_type=BF16)


class QdqModel(nn.Module):
    """flax's older op: quantised, dequantised, and a dot in bfloat16 that XLA recognises."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(WIDTH, dtype=BF16, use_bias=False, dot_general_cls=Fp8DotGeneralOp)(x)


def flax_loss(model):
    """(loss, its arguments) of ``model``."""
    variables = model.init(jax.random.key(0), X)

    def loss(variables, x):
        return jnp.mean(model.apply(variables, x).astype(jnp.float32) ** 2)

    return loss, (variables, X)


def attention(q, k, v):
    """Scores and values in FP8, several heads, batched by the dot itself."""
    q, k, v = (x.astype(E4M3) for x in (q, k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32)
    weights = jax.nn.softmax(scores * 0.25).astype(E4M3)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v, preferred_element_type=BF16)


@jax.custom_vjp
def fp8_matmul(x, w):
    return product(x.astype(E4M3), w.astype(E4M3))


def product(a, b, precision=None):
    dims = (((a.ndim - 1,), (0,)), ((), ()))
    return lax.dot_general(a, b, dims, precision=precision, preferred_element_type=BF16)


def fp8_matmul_backward(residuals, g):
    x, w = residuals
    g = g.astype(E5M2)
    return product(g, w.astype(E4M3).T, "highest"), product(x.astype(E4M3).T, g, "highest")


fp8_matmul.defvjp(lambda x, w: (fp8_matmul(x, w), (x, w)), fp8_matmul_backward)


def layers(x, weights):
    """A scan over stacked layers, each rematerialised, and the gradient by the weights."""

    @jax.checkpoint
    def layer(x, w):
        return jnp.tanh(fp8_matmul(x, w)), None

    def loss(weights):
        return jnp.sum(lax.scan(layer, x, weights)[0].astype(jnp.float32))

    return jax.grad(loss)(weights)


def inference(x, w, scale_w):
    """Weights stored in FP8 and dequantised where they are used."""
    scale_x = jnp.max(jnp.abs(x)).astype(jnp.float32) / 448
    x8 = (x / scale_x.astype(BF16)).astype(E4M3)
    dequantised = x8.astype(BF16) * scale_x.astype(BF16), w.astype(BF16) * scale_w.astype(BF16)
    return product(*dequantised)


def experts(x, weights):
    """One FP8 product for each expert."""
    return jax.vmap(product)(x.astype(E4M3), weights.astype(E4M3))


def fixtures():
    """name -> (function, arguments, FP8 GEMMs in its program)."""
    dense, dense_args = flax_loss(DenseModel())
    einsum, einsum_args = flax_loss(EinsumModel())
    qdq, qdq_args = flax_loss(QdqModel())
    heads = [normal(i, (BATCH, LENGTH, 2, 16)) for i in (1, 2, 3)]
    square = normal(4, (3, WIDTH, WIDTH))
    return {
        "dense": (dense, dense_args, 2),
        "dense, backward": (jax.grad(dense, (0, 1)), dense_args, 6),
        "einsum": (einsum, einsum_args, 1),
        "einsum, backward": (jax.grad(einsum, (0, 1)), einsum_args, 3),
        "qdq": (qdq, qdq_args, 1),
        "qdq, backward": (jax.grad(qdq, (0, 1)), qdq_args, 3),
        "attention": (jax.jit(attention), heads, 2),
        "layers": (jax.jit(layers), (X[0], square), 4),
        "inference": (inference, (X[0], square[0].astype(E4M3), jnp.float32(0.37)), 1),
        "experts": (experts, (normal(5, (3, LENGTH, WIDTH)), square), 1),
    }
