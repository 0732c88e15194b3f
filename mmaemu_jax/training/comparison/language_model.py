"""A small transformer language model whose linear layers take any dot_general.

Byte-level, pre-norm, causal; float32 parameters, bfloat16 activations, Adam. The six linear layers
of a block go through the given dot_general; attention, norms, embedding and head stay with XLA.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mmaemu_jax.errors import message

#: The linear layers of a block, in the order of their calls.
LINEAR_LAYERS = ("query", "key", "value", "out", "up", "down")

_CONTRACT_LAST_WITH_FIRST = (((1,), (0,)), ((), ()))


@dataclasses.dataclass(frozen=True)
class ModelShape:
    """Sizes of the model and of a batch.

    Raises:
        ValueError: a size that is not positive, a width that the heads do not divide.
    """

    width: int = 1024
    hidden: int = 1024
    blocks: int = 1
    heads: int = 8
    sequences: int = 8
    length: int = 128

    def __post_init__(self):
        for name, value in dataclasses.asdict(self).items():
            if value < 1:
                raise ValueError(f"compare: {name} must be positive, got {value}.")
        if self.width % self.heads:
            raise ValueError(
                message(
                    f"compare: {self.heads} heads do not divide a width of {self.width}.",
                    ["choose a width that is a multiple of heads"],
                )
            )

    @property
    def tokens(self) -> int:
        """Tokens of a batch: K of the weight gradients."""
        return self.sequences * self.length

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the dot_general calls of a loss, in order."""
        return tuple(f"block {i} {layer}" for i in range(self.blocks) for layer in LINEAR_LAYERS)


def init_params(shape: ModelShape, symbols: int, seed: int) -> dict[str, Any]:
    """Parameters in float32: normal of variance 1 / fan-in, biases none, norms 1."""
    rng = np.random.default_rng(seed)

    def normal(rows: int, columns: int, scale: float = 1.0) -> jax.Array:
        values = rng.standard_normal((rows, columns), np.float32) * np.float32(scale / rows**0.5)
        return jnp.asarray(values)

    d, h = shape.width, shape.hidden
    sizes = dict.fromkeys(LINEAR_LAYERS, (d, d)) | {"up": (d, h), "down": (h, d)}
    # What a block adds is scaled down so that depth does not change the size of the sum.
    scales = dict.fromkeys(LINEAR_LAYERS, 1.0)
    scales |= dict.fromkeys(("out", "down"), (2 * shape.blocks) ** -0.5)
    blocks = [
        {layer: normal(*sizes[layer], scales[layer]) for layer in LINEAR_LAYERS}
        | {"norm_attention": jnp.ones(d), "norm_hidden": jnp.ones(d)}
        for _ in range(shape.blocks)
    ]
    return {
        "embedding": normal(symbols, d, symbols**0.5),
        "position": normal(shape.length, d, 0.1 * shape.length**0.5),
        "blocks": blocks,
        "norm": jnp.ones(d),
        "head": normal(d, symbols),
    }


def loss_fn(shape: ModelShape, params: dict[str, Any], tokens: jax.Array, dot_general) -> jax.Array:
    """Mean cross entropy, in nats, of the next symbol.

    Args:
        shape: the model's.
        params: as :func:`init_params` makes them.
        tokens: int32 [sequences, length + 1].
        dot_general: of the linear layers: (lhs, rhs, dimension_numbers) -> array.
    """
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    x = params["embedding"][inputs] + params["position"]
    x = x.reshape(-1, shape.width).astype(jnp.bfloat16)
    for block in params["blocks"]:
        x = x + _attention(shape, block, _norm(x, block["norm_attention"]), dot_general)
        x = x + _hidden(block, _norm(x, block["norm_hidden"]), dot_general)
    logits = jnp.dot(
        _norm(x, params["norm"]),
        params["head"].astype(jnp.bfloat16),
        preferred_element_type=jnp.float32,
    )
    log_probability = jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(log_probability, targets.reshape(-1, 1), axis=1)
    return -jnp.mean(chosen)


def _norm(x: jax.Array, gain: jax.Array) -> jax.Array:
    x = x.astype(jnp.float32)
    size = jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)
    return (x * size * gain).astype(jnp.bfloat16)


def _linear(block: dict[str, jax.Array], layer: str, x: jax.Array, dot_general) -> jax.Array:
    return dot_general(x, block[layer].astype(jnp.bfloat16), _CONTRACT_LAST_WITH_FIRST)


def _attention(shape: ModelShape, block, x: jax.Array, dot_general) -> jax.Array:
    def heads(layer: str) -> jax.Array:
        y = _linear(block, layer, x, dot_general).astype(jnp.float32)
        return y.reshape(shape.sequences, shape.length, shape.heads, -1)

    query, key, value = (heads(layer) for layer in ("query", "key", "value"))
    scores = jnp.einsum("bqhc,bkhc->bhqk", query, key) / query.shape[-1] ** 0.5
    causal = jnp.tril(jnp.ones((shape.length, shape.length), bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -1e30))
    mixed = jnp.einsum("bhqk,bkhc->bqhc", weights, value)
    return _linear(block, "out", mixed.reshape(x.shape).astype(jnp.bfloat16), dot_general)


def _hidden(block, x: jax.Array, dot_general) -> jax.Array:
    return _linear(block, "down", jax.nn.gelu(_linear(block, "up", x, dot_general)), dot_general)


# ----------------------------------------------------------------------------------------- training


def init_state(shape: ModelShape, symbols: int, seed: int):
    """(parameters, first moments, second moments, number of steps)."""
    params = init_params(shape, symbols, seed)
    zeros = jax.tree.map(jnp.zeros_like, params)
    return params, zeros, zeros, jnp.int32(0)


def train_step(shape: ModelShape, learning_rate: float, state, tokens: jax.Array, dot_general):
    """One step of Adam with a short warm-up; the new state and the loss."""
    params, first, second, count = state
    loss, grads = jax.value_and_grad(loss_fn, argnums=1)(shape, params, tokens, dot_general)
    count = count + 1
    t = count.astype(jnp.float32)
    rate = learning_rate * jnp.minimum(t / 10, 1.0)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, grads)
    correct_first, correct_second = 1 - 0.9**t, 1 - 0.99**t

    def updated(p, m, v):
        return p - rate * (m / correct_first) / (jnp.sqrt(v / correct_second) + 1e-8)

    return (jax.tree.map(updated, params, first, second), first, second, count), loss
