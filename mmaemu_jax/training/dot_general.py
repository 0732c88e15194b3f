"""fp8_dot_general: lax.dot_general with FP8 numerics, forward and backward."""

import dataclasses
import functools
import typing
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax import lax

from mmaemu_jax.arguments import name_argument
from mmaemu_jax.backends import check_backend
from mmaemu_jax.contraction import ContractionArgument, Mode
from mmaemu_jax.errors import message
from mmaemu_jax.platforms import Profile, SplitArgument, parse_splitk, profile_argument
from mmaemu_jax.training.arguments import (
    FUNCTION,
    check_state,
    check_unused,
    contractions_argument,
    operand_argument,
    result_dtype,
)
from mmaemu_jax.training.cast import Fp8Tensor, cast
from mmaemu_jax.training.gemms import GemmOptions, check_dimensions, fp8_gemm, wide_gemm
from mmaemu_jax.training.layout import Layout, make_layout
from mmaemu_jax.training.recipe import GEMM_TENSORS, Recipe
from mmaemu_jax.training.recipes import recipe_argument
from mmaemu_jax.training.state import Fp8State


def fp8_dot_general(
    lhs,
    rhs,
    dimension_numbers,
    precision=None,
    preferred_element_type=None,
    *,
    out_sharding=None,
    recipe: str | Recipe,
    state: Fp8State | None = None,
    profile: str | Profile | None = None,
    splitk: SplitArgument = "auto_or_unsplit",
    backend: str = "auto",
    contraction: Mode | Mapping[str, ContractionArgument] = "gather",
) -> jax.Array:
    """``lax.dot_general`` as a framework's FP8 layer computes it, with that layer's gradients.

    The operands are quantised to FP8; the product and the two products of the backward pass are
    each one emulated GEMM (:func:`mmaemu_jax.scaled_mm`) with the formats, accumulation, output
    dtype and operand order of the recipe. Batch dimensions share the scales of their tensor and
    are one GEMM each (R25).

    Args:
        lhs: the activations, in float32, bfloat16 or float16.
        rhs: the weights, likewise.
        dimension_numbers: as for ``lax.dot_general``.
        precision: must be None: the recipe says how to accumulate.
        preferred_element_type: float32, bfloat16 or float16; None is the operands' own.
        out_sharding: must be None.
        recipe: a name (:func:`list_recipes`) or a :class:`Recipe`.
        state: of a recipe with delayed scaling (:func:`init_state`), else None. Its gradient is
            the state after the step (:func:`apply_state`).
        profile: whose GEMMs; None is the recipe's.
        splitk, backend: as in :func:`mmaemu_jax.scaled_mm`, but for the default, which assumes
            an unknown split to be 1 and warns.
        contraction: what happens where the contracted dimension of a GEMM is spread over
            devices: a mode for all three GEMMs, or a mapping from "fprop", "dgrad" and "wgrad"
            to a mode or a :class:`mmaemu_jax.Contraction`; "gather" for those it leaves out.

    Returns:
        What ``lax.dot_general`` returns, in the preferred dtype.

    Raises:
        TypeError: operands of other types or shapes, no Recipe.
        ValueError: an unknown option value, a state where none belongs or none where one does.
        ReferenceRejectsError: a dimension that the framework refuses.
        MmaemuError: as scaled_mm.
    """
    known = recipe_argument(FUNCTION, recipe)
    lhs, rhs = operand_argument("lhs", lhs), operand_argument("rhs", rhs)
    check_unused(precision, out_sharding)
    layout = make_layout(FUNCTION, lhs, rhs, dimension_numbers)
    out_dtype = result_dtype(lhs, rhs, preferred_element_type)
    name_argument(FUNCTION, "backend", backend)
    check_backend(FUNCTION, backend)
    platform = profile_argument(FUNCTION, known.profile if profile is None else profile)
    parse_splitk(FUNCTION, splitk, platform)
    check_state(known, state)
    options = GemmOptions(known, platform, splitk, backend, contractions_argument(contraction))
    call = _Call(options, layout, out_dtype, lhs.dtype, rhs.dtype)
    return _dot(call, lhs, rhs, state)


# ------------------------------------------------------------------------------------ the gradient


@dataclasses.dataclass(frozen=True)
class _Call:
    """Everything static about one call."""

    options: GemmOptions
    layout: Layout
    out_dtype: np.dtype
    lhs_dtype: np.dtype
    rhs_dtype: np.dtype

    @property
    def recipe(self) -> Recipe:
        return self.options.recipe

    def needs(self, tensor: str, *gemms: str) -> tuple[bool, bool]:
        """Whether these GEMMs need the tensor in FP8, and whether they need it as it is."""
        users = [self.recipe.gemm(g).fp8 for g in gemms if tensor in GEMM_TENSORS[g]]
        return any(users), not all(users)

    def cast(self, tensor: str, x: jax.Array, state: Fp8State | None) -> Fp8Tensor:
        of_tensor = None if state is None else getattr(state, tensor)
        compute_dtype = self.out_dtype if tensor == "grad" else self.rhs_dtype
        return cast(self.recipe.quantization(tensor), x, of_tensor, compute_dtype)

    def multiply(self, gemm: str, tensors: dict[str, "_Pair"], out_dtype) -> jax.Array:
        how = self.recipe.gemm(gemm)
        if how.fp8:
            return fp8_gemm(self.options, gemm, {t: x.fp8 for t, x in tensors.items()}, out_dtype)
        return wide_gemm(how, gemm, {t: x.wide for t, x in tensors.items()}, out_dtype)


class _Pair(typing.NamedTuple):
    """One matrix in FP8 and as it is; None where no GEMM needs it."""

    fp8: Any
    wide: Any


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _dot(call: _Call, lhs, rhs, state):
    return _forward(call, lhs, rhs, state, ("fprop",))[0]


def _forward(call: _Call, lhs, rhs, state, gemms: tuple[str, ...]):
    """The result, and each operand as a pair: in FP8 and as it is, where ``gemms`` need it."""
    layout = call.layout
    check_dimensions(call.recipe, gemms, layout.mnk)
    tensors = {}
    for name, matrix in (("lhs", layout.lhs_matrix(lhs)), ("rhs", layout.rhs_matrix(rhs))):
        in_fp8, as_it_is = call.needs(name, *gemms)
        quantised = call.cast(name, matrix, state) if in_fp8 else None
        tensors[name] = _Pair(quantised, matrix if as_it_is else None)
    y = call.multiply("fprop", tensors, call.out_dtype)
    return layout.result(y), tensors


def _dot_fwd(call: _Call, lhs, rhs, state):
    y, tensors = _forward(call, lhs, rhs, state, tuple(GEMM_TENSORS))
    return y, (tensors, state, _Varying(_varying(lhs), _varying(rhs)))


def _dot_bwd(call: _Call, residuals, cotangent):
    tensors, state, varying = residuals
    layout = call.layout
    grad = layout.result_matrix(cotangent)
    in_fp8, as_it_is = call.needs("grad", "dgrad", "wgrad")
    quantised = call.cast("grad", grad, state) if in_fp8 else None
    tensors = {**tensors, "grad": _Pair(quantised, grad if as_it_is else None)}
    dlhs = layout.lhs(call.multiply("dgrad", tensors, call.lhs_dtype))
    drhs = layout.rhs(call.multiply("wgrad", tensors, call.rhs_dtype))
    after = None if state is None else _state_after(state, tensors)
    return _summed(dlhs, varying.lhs), _summed(drhs, varying.rhs), after


@functools.partial(jax.tree_util.register_dataclass, data_fields=(), meta_fields=("lhs", "rhs"))
@dataclasses.dataclass(frozen=True)
class _Varying:
    """The mesh axes of a shard_map over which each operand varies."""

    lhs: frozenset[str]
    rhs: frozenset[str]


def _varying(x) -> frozenset[str]:
    return frozenset(jax.typeof(x).manual_axis_type.varying)


def _summed(cotangent: jax.Array, varying: frozenset[str]) -> jax.Array:
    """The cotangent of an operand that varies over ``varying`` alone: summed over other axes."""
    axes = tuple(sorted(_varying(cotangent) - varying))
    return lax.psum(cotangent, axes) if axes else cotangent


def _state_after(state: Fp8State, tensors: dict) -> Fp8State:
    def updated(name: str):
        quantised = tensors[name].fp8
        return getattr(state, name) if quantised is None else quantised.state

    uses = lax.full_like(state.uses, 1)
    after = Fp8State(lhs=updated("lhs"), rhs=updated("rhs"), grad=updated("grad"), uses=uses)
    return jax.tree.map(_as_the_state_varies, after, state)


def _as_the_state_varies(after: jax.Array, before: jax.Array) -> jax.Array:
    """``after``, refused where it differs between devices that share one state."""
    extra = sorted(_varying(after) - _varying(before))
    if extra:
        raise ValueError(
            message(
                f"{FUNCTION}: amax varies over the mesh axes {extra}, the state does not.",
                [
                    f"reduce amax over them: amax_axes={tuple(extra)} in the recipe's Scaling",
                    "give each device a state of its own: jax.lax.pcast(state, axes, to='varying')",
                ],
            )
        )
    missing = tuple(sorted(_varying(before) - _varying(after)))
    return lax.pcast(after, missing, to="varying") if missing else after


_dot.defvjp(_dot_fwd, _dot_bwd)
