"""The state of delayed scaling: an explicit pytree that leaves the backward pass updated.

The gradient of a loss with respect to an :class:`Fp8State` is not a derivative: it is the state
after the step, as in Flax and Transformer Engine. :func:`apply_state` puts it in place.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from mmaemu_jax.errors import message
from mmaemu_jax.training.recipe import Recipe
from mmaemu_jax.training.recipes import recipe_argument

_pytree = partial(jax.tree_util.register_dataclass, meta_fields=())


@partial(_pytree, data_fields=("scale", "amax_history"))
@dataclasses.dataclass(frozen=True)
class ScaleState:
    """One tensor's delayed scaling.

    Attributes:
        scale: float32 [], the scale (or its inverse, as the recipe's convention says).
        amax_history: float32 [history_length].
    """

    scale: jax.Array
    amax_history: jax.Array


@partial(_pytree, data_fields=("lhs", "rhs", "grad", "uses"))
@dataclasses.dataclass(frozen=True)
class Fp8State:
    """The state of one fp8_dot_general; every leaf is float32.

    Attributes:
        lhs, rhs, grad: the scaling of each tensor that the recipe scales with delay, else None.
        uses: 0 in a state; in its gradient the number of backward passes that were added up.
    """

    lhs: ScaleState | None
    rhs: ScaleState | None
    grad: ScaleState | None
    uses: jax.Array


def init_state(recipe: str | Recipe) -> Fp8State | None:
    """The state before the first step (scales 1, histories 0); None if the recipe needs none."""
    known = recipe_argument("init_state", recipe)
    if not known.delayed:
        return None
    tensors = {name: _init(known, name) for name in ("lhs", "rhs", "grad")}
    return Fp8State(**tensors, uses=jnp.zeros((), jnp.float32))


def _init(recipe: Recipe, name: str) -> ScaleState | None:
    if name not in recipe.delayed:
        return None
    length = recipe.quantization(name).scaling.history_length
    history = jnp.zeros((length,), jnp.float32)
    return ScaleState(jnp.ones((), jnp.float32), history)


def apply_state(state, gradient):
    """``state`` after the step: every :class:`Fp8State` in the pytree replaced by its gradient.

    A state that no backward pass used stays as it is. One that several used (a shared layer, a
    loop that closes over it) has no meaning, since their gradients were added.

    Args:
        state: a pytree with Fp8State nodes; other leaves are returned as they are.
        gradient: what ``jax.grad`` returned for it.

    Raises:
        ValueError: a state was used by several backward passes. Under jit, where that is not
            known, its scales become NaN, and so does everything computed with them.
    """
    is_state = partial(_is_instance, Fp8State)
    return jax.tree.map(_apply, state, gradient, is_leaf=is_state)


def _is_instance(kind: type, value) -> bool:
    return isinstance(value, kind)


def _apply(state, gradient):
    if not isinstance(state, Fp8State):
        return state
    uses = gradient.uses
    if not isinstance(uses, Tracer) and np.any(np.asarray(uses) > 1):
        raise ValueError(
            message(
                f"apply_state: a state was used by {float(np.max(uses)):g} backward passes, whose "
                "updates were added.",
                [
                    "give every use a state of its own",
                    "take the gradient of one microbatch at a time and apply each",
                    "instead of vmap, pass the batch as one of lhs's dimensions",
                ],
            )
        )

    def choose(old, new):
        used = uses.reshape(uses.shape + (1,) * (old.ndim - uses.ndim))
        return jnp.where(used == 0, old, jnp.where(used == 1, new, jnp.float32(jnp.nan)))

    chosen = jax.tree.map(choose, state, gradient)
    return dataclasses.replace(chosen, uses=state.uses)
