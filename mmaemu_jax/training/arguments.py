"""The arguments of fp8_dot_general, checked."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from mmaemu_jax.arguments import dtype_argument, unknown_option
from mmaemu_jax.call import array_operand
from mmaemu_jax.contraction import Contraction, contraction_argument
from mmaemu_jax.errors import message
from mmaemu_jax.training.recipe import GEMM_TENSORS, Recipe
from mmaemu_jax.training.state import Fp8State

FUNCTION = "fp8_dot_general"
_DTYPES = tuple(np.dtype(t) for t in (jnp.float32, jnp.bfloat16, jnp.float16))


def operand_argument(name: str, value) -> jax.Array:
    """``value`` as an array of one of the three dtypes."""
    operand = array_operand(FUNCTION, name, value)
    if operand.dtype not in _DTYPES:
        raise TypeError(
            message(
                f"{FUNCTION}: {name} must be float32, bfloat16 or float16, got {operand}.",
                ["convert it first", "mmaemu_jax.scaled_mm multiplies FP8 arrays"],
            )
        )
    return jnp.asarray(value)


def check_unused(precision, out_sharding) -> None:
    """Refuses arguments of lax.dot_general that the recipe replaces."""
    if precision is not None:
        raise ValueError(
            message(
                f"{FUNCTION}: precision must be None, got {precision!r}: the recipe says how each "
                "GEMM accumulates.",
                ["dataclasses.replace(recipe, fprop=Gemm(('lhs', 'rhs'), use_fast_accum=False))"],
            )
        )
    if out_sharding is not None:
        raise ValueError(
            message(
                f"{FUNCTION}: out_sharding must be None, got {out_sharding!r}: the result is "
                "sharded as the operands are.",
                ["jax.sharding.reshard(result, ...)"],
            )
        )


def result_dtype(lhs, rhs, preferred) -> np.dtype:
    """The dtype of the result."""
    if preferred is None:
        return np.dtype(jnp.promote_types(lhs.dtype, rhs.dtype))
    dtype = dtype_argument(FUNCTION, "preferred_element_type", preferred)
    if dtype not in _DTYPES:
        raise ValueError(
            message(
                f"{FUNCTION}: preferred_element_type must be float32, bfloat16 or float16, got "
                f"{dtype.name}.",
                ["leave it out", "quantize the result with mmaemu_jax.quantize"],
            )
        )
    return dtype


def check_state(recipe: Recipe, state) -> None:
    """Refuses a state that does not fit the recipe."""
    delayed = recipe.delayed
    if state is None and delayed:
        raise ValueError(
            message(
                f"{FUNCTION}: recipe {recipe.name!r} scales {', '.join(delayed)} with delay and "
                "needs a state, got None.",
                ["pass state=mmaemu_jax.training.init_state(recipe)", "a recipe that scales by "
                 "the current amax, such as 'te_pytorch_current'"],
            )
        )  # fmt: skip
    if state is None:
        return
    if not isinstance(state, Fp8State):
        raise TypeError(f"{FUNCTION}: state must be an Fp8State or None, got {state!r}.")
    for tensor in ("lhs", "rhs", "grad"):
        scale = getattr(state, tensor)
        length = recipe.quantization(tensor).scaling.history_length
        if (scale is not None) != (tensor in delayed) or (
            scale is not None and (scale.amax_history.shape, scale.scale.shape) != ((length,), ())
        ):
            raise ValueError(
                message(
                    f"{FUNCTION}: the state of {tensor} does not fit recipe {recipe.name!r}.",
                    ["pass state=mmaemu_jax.training.init_state(recipe)"],
                )
            )


def contractions_argument(value) -> tuple[tuple[str, Contraction], ...]:
    """How each GEMM contracts over devices, by name."""
    if not isinstance(value, Mapping):
        how = contraction_argument(FUNCTION, value)
        if how.axes or how.parts > 1:
            raise ValueError(
                message(
                    f"{FUNCTION}: each GEMM contracts another dimension: say which one {how} is "
                    "for.",
                    ["contraction={'wgrad': Contraction(...)} for the weights' gradient"],
                )
            )
        value = dict.fromkeys(GEMM_TENSORS, how)
    for name in value:
        if name not in GEMM_TENSORS:
            raise unknown_option(FUNCTION, "GEMM in contraction", name, GEMM_TENSORS)
    return tuple((name, contraction_argument(FUNCTION, how)) for name, how in value.items())
