"""Drop-ins for Flax: modules that hold the state of fp8_dot_general (import by name; needs flax).

    linen.Dense(64, dot_general_cls=functools.partial(Fp8DotGeneral, recipe="te_pytorch"))
    nnx.Linear(64, 64, rngs=rngs, dot_general=NnxFp8DotGeneral("te_pytorch"))

A recipe without state needs no module: ``dot_general=functools.partial(fp8_dot_general,
recipe="torchao_tensorwise")`` does.
"""

import functools
from typing import Any

import jax
from flax import linen, nnx, serialization
from flax.linen.fp8_ops import OVERWRITE_WITH_GRADIENT

from mmaemu_jax.training.dot_general import fp8_dot_general
from mmaemu_jax.training.einsum import fp8_einsum
from mmaemu_jax.training.recipe import Recipe
from mmaemu_jax.training.recipes import recipe_argument
from mmaemu_jax.training.state import Fp8State, ScaleState, init_state


class _Fp8Module(linen.Module):
    """Recipe, state and options of one product.

    Attributes:
        recipe: a name or a Recipe.
        options: further arguments of fp8_dot_general, such as ``{"splitk": 1}``.
    """

    recipe: str | Recipe
    options: Any = None

    def _arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        state = None
        if recipe_argument("init_state", self.recipe).delayed:
            state = self.variable(OVERWRITE_WITH_GRADIENT, "fp8", init_state, self.recipe).value
        return {**dict(self.options or {}), **arguments, "recipe": self.recipe, "state": state}


class Fp8DotGeneral(_Fp8Module):
    """A ``dot_general_cls`` for linen modules (Dense, DenseGeneral, attention's projections).

    The state of a delayed recipe is the variable "fp8" of the collection
    "_overwrite_with_gradient", as in Flax's own FP8 modules: its gradient is its next value, and
    ``flax.training.train_state.TrainState`` puts it in place.
    """

    @linen.compact
    def __call__(self, lhs, rhs, dimension_numbers, precision=None, **arguments) -> jax.Array:
        """As fp8_dot_general, with this module's recipe and state."""
        arguments = self._arguments({"precision": precision, **arguments})
        return fp8_dot_general(lhs, rhs, dimension_numbers, **arguments)


class Fp8Einsum(_Fp8Module):
    """The same for einsums: attention's ``qk_attn_weights_einsum_cls`` and its like."""

    @linen.compact
    def __call__(self, subscripts, lhs, rhs, /, **arguments) -> jax.Array:
        """As fp8_einsum, with this module's recipe and state."""
        return fp8_einsum(subscripts, lhs, rhs, **self._arguments(arguments))


class Fp8Variable(nnx.Variable):
    """Holds an Fp8State. Differentiate with respect to it, then put its gradient in place."""


class NnxFp8DotGeneral(nnx.Module):
    """A ``dot_general`` for nnx modules (Linear, LinearGeneral) that holds its state.

    Args:
        recipe: a name or a Recipe.
        options: further arguments of fp8_dot_general, such as ``splitk=1``.
    """

    def __init__(self, recipe: str | Recipe, **options: Any):
        state = init_state(recipe)
        self._dot_general = functools.partial(fp8_dot_general, recipe=recipe, **options)
        self.state = None if state is None else Fp8Variable(state)

    def __call__(self, lhs, rhs, dimension_numbers, precision=None, **arguments) -> jax.Array:
        """As fp8_dot_general, with this module's recipe and state."""
        state = None if self.state is None else self.state.get_value()
        return self._dot_general(
            lhs, rhs, dimension_numbers, precision=precision, state=state, **arguments
        )


class NnxFp8Einsum(NnxFp8DotGeneral):
    """The same as an ``einsum_op`` of nnx.Einsum."""

    def __init__(self, recipe: str | Recipe, **options: Any):
        super().__init__(recipe, **options)
        self._dot_general = functools.partial(fp8_einsum, recipe=recipe, **options)


def _register(kind: type, *fields: str) -> None:
    """Teaches flax.serialization, and so Flax's checkpoints, the fields of a state."""

    def to_dict(value):
        return {name: serialization.to_state_dict(getattr(value, name)) for name in fields}

    def from_dict(value, state):
        restored = {
            name: serialization.from_state_dict(getattr(value, name), state[name], name=name)
            for name in fields
        }
        return kind(**restored)

    serialization.register_serialization_state(kind, to_dict, from_dict, override=True)


_register(ScaleState, "scale", "amax_history")
_register(Fp8State, "lhs", "rhs", "grad", "uses")
