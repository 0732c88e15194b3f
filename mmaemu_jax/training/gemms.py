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
from mmaemu_jax.contraction import Contraction, contract
from mmaemu_jax.errors import ReferenceRejectsError, message
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
    contractions: tuple[tuple[str, Contraction], ...] = ()

    def contraction(self, name: str) -> Contraction:
        """How the GEMM ``name`` contracts over devices."""
        return dict(self.contractions).get(name, Contraction())


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
        return _call(options, name, left, right, rounded_to).astype(out_dtype)
    swapped = _call(options, name, _flipped(right), _flipped(left), rounded_to)
    return jnp.swapaxes(swapped, -1, -2).astype(out_dtype)


def check_dimensions(recipe: Recipe, names: tuple[str, ...], mnk: tuple[int, int, int]) -> None:
    """Refuses dimensions of FP8 GEMMs that the framework refuses, before the first one runs.

    Raises:
        ReferenceRejectsError: a contracted or column dimension is not a multiple of 16.
    """
    if recipe.padding != "refuse" or math.prod(mnk) == 0:
        return
    m, n, k = mnk
    for name in names:
        gemm, rows = recipe.gemm(name), {"fprop": (m, n), "dgrad": (m, k), "wgrad": (k, n)}[name]
        columns = rows[1 if gemm.operands[0] == _ROWS_OF[name] else 0]
        contracted = {"fprop": k, "dgrad": n, "wgrad": m}[name]
        if gemm.fp8 and (contracted % PADDED_TO or columns % PADDED_TO):
            raise ReferenceRejectsError(
                message(
                    f"fp8_dot_general: the {name} of lhs [{m}, {k}] and rhs [{k}, {n}] contracts "
                    f"{contracted} elements to rows of {columns}, which must be multiples of "
                    f"{PADDED_TO}.",
                    [
                        "pad with zeros and slice the result",
                        "dataclasses.replace(recipe, padding='zeros')",
                    ],
                )
            )


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


def _call(options: GemmOptions, name: str, a: Fp8Tensor, b: Fp8Tensor, out_dtype) -> jax.Array:
    """a (B, M, K) times b (B, K, N), contracted over devices as the options say."""
    how = options.contraction(name)
    product = functools.partial(_product, options, options.recipe.gemm(name), out_dtype)
    if not _may_be_spread(how, a.codes, b.codes):
        return product(a.codes, b.codes, a.inverse, b.inverse)

    def of_slices(a, b, *inverses):
        return product(a, jnp.swapaxes(b, -1, -2), *(x.reshape(()) for x in inverses))

    inverses = (x.reshape((1,) * (a.codes.ndim - 2)) for x in (a.inverse, b.inverse))
    rows_of_b = jnp.swapaxes(b.codes, -1, -2)
    function = f"fp8_dot_general ({name})"
    return contract(of_slices, a.codes, rows_of_b, *inverses, contraction=how, function=function)


def _may_be_spread(how: Contraction, a: jax.Array, b: jax.Array) -> bool:
    """Whether K is spread over devices as far as the options and the types of codes tell.

    Everything else goes without :func:`contract`, which takes b as (B, N, K): a transpose of
    FP8 codes that XLA would carry out.
    """
    by_types = (jax.typeof(a).sharding.spec[-1:], jax.typeof(b).sharding.spec[-2:-1])
    return bool(how.axes) or how.parts > 1 or any(entry not in ((), (None,)) for entry in by_types)


def _product(options: GemmOptions, gemm: Gemm, out_dtype, a, b, inverse_a, inverse_b) -> jax.Array:
    """Codes a (B, M, K) times b (B, K, N), with the scales where the recipe puts them."""
    one = jnp.ones((), jnp.float32)
    scale_a, scale_b, product = inverse_a, inverse_b, one
    if options.recipe.scales != "operands":
        product = folded_scale(out_dtype, inverse_a, inverse_b)
        scale_a, scale_b = (product if options.recipe.scales == "folded" else one), one
    call = functools.partial(
        scaled_mm,
        out_dtype=out_dtype,
        use_fast_accum=gemm.use_fast_accum,
        profile=options.profile,
        splitk=options.splitk,
        backend=options.backend,
    )
    m, n = a.shape[-2], b.shape[-1]
    if options.recipe.padding == "zeros":
        a, b = _padded(a), _padded(b)
    if a.ndim == 3:
        call = jax.vmap(call, in_axes=(0, 0, None, None))
    y = call(a, b, scale_a, scale_b)[..., :m, :n]
    if options.recipe.scales == "after":
        y = scale_output(y, product)
    return y


def _padded(codes: jax.Array) -> jax.Array:
    """Zero codes up to multiples of 16 in the last two dimensions; 0 is one."""
    missing = [-dim % PADDED_TO for dim in codes.shape[-2:]]
    if not any(missing):
        return codes
    config = [(0, 0, 0)] * (codes.ndim - 2) + [(0, extra, 0) for extra in missing]
    return lax.pad(codes, np.zeros((), codes.dtype), config)
