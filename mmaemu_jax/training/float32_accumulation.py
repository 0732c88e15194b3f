"""A recipe's quantisation with XLA's own products: the baseline that no GPU's arithmetic enters."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mmaemu_jax.errors import message
from mmaemu_jax.training.cast import Fp8Tensor, cast, folded_scale
from mmaemu_jax.training.layout import Layout, make_layout
from mmaemu_jax.training.recipe import Recipe
from mmaemu_jax.training.recipes import get_recipe


def float32_dot_general(
    lhs,
    rhs,
    dimension_numbers,
    precision=None,
    preferred_element_type=None,
    *,
    recipe: str | Recipe,
    parts: int = 1,
) -> jax.Array:
    """``lax.dot_general`` of quantised operands, forward and backward, accumulated in float32.

    The operands and the gradient become the FP8 codes that :func:`fp8_dot_general` makes of them
    with the same recipe. Their products are XLA's, accumulated in float32 in an order of its own,
    times the inverse scales, rounded to the result's dtype: what FP8 training computes where
    nothing is like a tensor core. Without batch dimensions.

    Args:
        lhs, rhs, dimension_numbers, preferred_element_type: as for ``lax.dot_general``.
        precision: must be None.
        recipe: whose quantisation; a name or a :class:`Recipe` that scales by the current amax.
        parts: K is cut into so many parts, whose sums are added: other orders of the same sums.

    Raises:
        TypeError, ValueError: a wrong argument, a recipe with delayed scaling, batch dimensions.
    """
    known = get_recipe(recipe)
    if precision is not None or any(dimension_numbers[1]) or known.delayed:
        raise ValueError(
            message(
                "float32_dot_general: precision must be None, batch dimensions none, and the "
                f"scaling not delayed; got precision {precision!r}, dimension numbers "
                f"{dimension_numbers}, recipe {known.name!r}.",
                ["a recipe that scales by the current amax, such as 'te_pytorch_current'"],
            )
        )
    lhs, rhs = jnp.asarray(lhs), jnp.asarray(rhs)
    layout = make_layout("float32_dot_general", lhs, rhs, dimension_numbers)
    wanted = preferred_element_type or jnp.promote_types(lhs.dtype, rhs.dtype)
    return _dot(_Options(known, parts), layout, np.dtype(wanted), lhs, rhs)


@dataclasses.dataclass(frozen=True)
class _Options:
    recipe: Recipe
    parts: int


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _dot(options: _Options, layout: Layout, out_dtype: np.dtype, lhs, rhs):
    return _dot_fwd(options, layout, out_dtype, lhs, rhs)[0]


def _dot_fwd(options: _Options, layout: Layout, out_dtype: np.dtype, lhs, rhs):
    recipe, parts = options.recipe, options.parts
    a = cast(recipe.lhs, layout.lhs_matrix(lhs), None, rhs.dtype)
    b = cast(recipe.rhs, layout.rhs_matrix(rhs), None, rhs.dtype)
    like = (jnp.zeros((0,), lhs.dtype), jnp.zeros((0,), rhs.dtype))
    return layout.result(_product(parts, (a, 1), (b, 0), out_dtype)), (a, b, like)


def _dot_bwd(options: _Options, layout: Layout, out_dtype: np.dtype, residuals, cotangent):
    recipe, parts = options.recipe, options.parts
    a, b, (like_lhs, like_rhs) = residuals
    grad = cast(recipe.grad, layout.result_matrix(cotangent), None, out_dtype)
    return (
        layout.lhs(_product(parts, (grad, 1), (b, 1), like_lhs.dtype)),
        layout.rhs(_product(parts, (a, 0), (grad, 0), like_rhs.dtype)),
    )


_dot.defvjp(_dot_fwd, _dot_bwd)


def _product(
    parts: int, a: tuple[Fp8Tensor, int], b: tuple[Fp8Tensor, int], out_dtype
) -> jax.Array:
    """The product of two matrices over the given axes."""
    (left, left_axis), (right, right_axis) = a, b
    dimensions = (((left_axis,), (right_axis,)), ((), ()))
    sums = jnp.float32(0)
    for x, y in zip(
        jnp.array_split(left.codes, parts, left_axis),
        jnp.array_split(right.codes, parts, right_axis),
        strict=True,
    ):
        sums += lax.dot_general(x, y, dimensions, preferred_element_type=jnp.float32)
    return (sums * folded_scale(jnp.float32, left.inverse, right.inverse)).astype(out_dtype)
