"""The three GEMMs of a linear layer, each one emulated call, or one of XLA's where asked."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mmaemu_jax.api import scaled_mm
from mmaemu_jax.platforms import Profile, SplitArgument
from mmaemu_jax.training.cast import Fp8Tensor, folded_scale, scale_output
from mmaemu_jax.training.recipe import GEMM_TENSORS, Gemm, Recipe

#: The tensor whose rows are the rows of the result, as dot_general and its gradients write it.
_ROWS_OF = {"fprop": "lhs", "dgrad": "grad", "wgrad": "lhs"}
#: As matrices lhs is (B, M, K), rhs (B, K, N), grad (B, M, N): which of them are transposed.
_TRANSPOSED = {"fprop": (), "dgrad": ("rhs",), "wgrad": ("lhs",)}

PADDED_TO = 16

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class GemmOptions:
    """Everything about the three GEMMs that is not data."""

    recipe: Recipe
    profile: Profile
    splitk: SplitArgument
    backend: str


def fp8_gemm(options: GemmOptions, name: str, tensors: dict[str, Fp8Tensor], out_dtype):
    """The GEMM ``name`` ("fprop", "dgrad" or "wgrad") of the recipe, emulated.

    Args:
        options: recipe and profile.
        name: which GEMM.
        tensors: its two matrices in FP8, by tensor.
        out_dtype: the dtype of the result, where the recipe names no other.

    Returns:
        (B, M, N) for fprop, (B, M, K) for dgrad, (B, K, N) for wgrad, in out_dtype.
    """
    gemm = options.recipe.gemm(name)
    rounded_to = _rounded_to(gemm, out_dtype)
    left, right = _factors(name, tensors, _flipped)
    if gemm.operands[0] == _ROWS_OF[name]:
        return _call(options, gemm, left, right, rounded_to).astype(out_dtype)
    swapped = _call(options, gemm, _flipped(right), _flipped(left), rounded_to)
    return jnp.swapaxes(swapped, -1, -2).astype(out_dtype)


def wide_gemm(gemm: Gemm, name: str, tensors: dict[str, jax.Array], out_dtype) -> jax.Array:
    """The same by XLA, of tensors that are not quantised, accumulated in float32."""
    left, right = _factors(name, tensors, lambda x: jnp.swapaxes(x, -1, -2))
    dtype = jnp.promote_types(left.dtype, right.dtype)
    product = jnp.matmul(
        left.astype(dtype),
        right.astype(dtype),
        precision=lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
    return product.astype(_rounded_to(gemm, out_dtype)).astype(out_dtype)


def _rounded_to(gemm: Gemm, out_dtype) -> np.dtype:
    return np.dtype(out_dtype if gemm.out_dtype is None else gemm.out_dtype)


def _factors(name: str, tensors: dict[str, T], flip: Callable[[T], T]) -> tuple[T, T]:
    """The two matrices of which the GEMM is the product, as dot_general writes it."""
    rows = _ROWS_OF[name]
    columns = next(tensor for tensor in GEMM_TENSORS[name] if tensor != rows)
    left, right = (
        flip(tensors[tensor]) if tensor in _TRANSPOSED[name] else tensors[tensor]
        for tensor in (rows, columns)
    )
    return left, right


def _flipped(tensor: Fp8Tensor) -> Fp8Tensor:
    return tensor._replace(codes=jnp.swapaxes(tensor.codes, -1, -2))


def _call(options: GemmOptions, gemm: Gemm, a: Fp8Tensor, b: Fp8Tensor, out_dtype) -> jax.Array:
    """a (B, M, K) times b (B, K, N) by scaled_mm, with the scales where the recipe puts them."""
    one = jnp.ones((), jnp.float32)
    scale_a, scale_b = a.inverse, b.inverse
    if options.recipe.scales != "operands":
        product = folded_scale(out_dtype, scale_a, scale_b)
        scale_a, scale_b = (product if options.recipe.scales == "folded" else one), one
    call = functools.partial(
        scaled_mm,
        out_dtype=out_dtype,
        use_fast_accum=gemm.use_fast_accum,
        profile=options.profile,
        splitk=options.splitk,
        backend=options.backend,
    )
    codes_a, codes_b = a.codes, b.codes
    m, n = codes_a.shape[-2], codes_b.shape[-1]
    if options.recipe.padding == "zeros":
        codes_a, codes_b = _padded(codes_a), _padded(codes_b)
    if codes_a.ndim == 3:
        call = jax.vmap(call, in_axes=(0, 0, None, None))
    y = call(codes_a, codes_b, scale_a, scale_b)[..., :m, :n]
    if options.recipe.scales == "after":
        y = scale_output(y, folded_scale(out_dtype, a.inverse, b.inverse))
    return y


def _padded(codes: jax.Array) -> jax.Array:
    """Zero codes up to multiples of 16 in the last two dimensions; an empty one stays empty."""
    missing = [-dim % PADDED_TO for dim in codes.shape[-2:]]
    if not any(missing) or math.prod(codes.shape) == 0:
        return codes
    config = [(0, 0, 0)] * (codes.ndim - 2) + [(0, extra, 0) for extra in missing]
    return lax.pad(codes, np.zeros((), codes.dtype), config)
