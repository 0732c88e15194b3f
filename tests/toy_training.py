"""A two-layer regression to compare arithmetics on: small enough to compile in a second."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from mmaemu_jax.training import Variant, fp8_dot_general


def bfloat16_dot_general(lhs, rhs, dimension_numbers):
    operands = (x.astype(jnp.bfloat16) for x in (lhs, rhs))
    return jax.lax.dot_general(*operands, dimension_numbers).astype(lhs.dtype)


MATMUL = (((1,), (0,)), ((), ()))
SITES = ("first", "second")
FP8 = functools.partial(
    fp8_dot_general, recipe="te_pytorch_current", profile="hopper-ws0", splitk="auto"
)
#: Two arithmetics that compile at once, for what does not depend on the emulation.
PLAIN = {"float32": jax.lax.dot_general, "bfloat16": bfloat16_dot_general}
VARIANTS = {"xla": jax.lax.dot_general, "hopper": Variant(FP8, "an H100 PCIe", "hopper-ws0")}


def loss(params, batch, dot_general):
    x, y = batch
    hidden = jnp.tanh(dot_general(x, params["first"], MATMUL))
    return jnp.mean((dot_general(hidden, params["second"], MATMUL) - y) ** 2)


def train_step(state, batch, dot_general):
    (params,) = state
    value, grads = jax.value_and_grad(loss)(params, batch, dot_general)
    return (jax.tree.map(lambda p, g: p - 0.1 * g, params, grads),), value


def init(seed):
    rng = np.random.default_rng(seed)
    first, second = (rng.standard_normal(s).astype(np.float32) for s in ((64, 32), (32, 16)))
    return ({"first": jnp.asarray(first) / 8, "second": jnp.asarray(second) / 6},)


def batches(seed, step):
    rng = np.random.default_rng([seed, step])
    x = rng.standard_normal((48, 64)).astype(np.float32)
    return x, np.tanh(x[:, :16])


#: The arguments of ``compare`` that name the problem.
PROBLEM = {"init": init, "batches": batches, "loss": loss, "sites": SITES}
