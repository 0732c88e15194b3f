"""The recipes of the frameworks that train in FP8 on Hopper GPUs, by name and with options."""

import dataclasses
from typing import Literal

from mmaemu_jax.arguments import type_name, unknown_option
from mmaemu_jax.platforms import get_profile
from mmaemu_jax.training.recipe import Gemm, Quantization, Recipe, ScaleUse
from mmaemu_jax.training.scaling import Scaling

Format = Literal["hybrid", "e4m3"]


def te_pytorch(
    scaling: Literal["delayed", "current"] = "delayed",
    format: Format = "hybrid",
    *,
    power_of_two: bool = False,
    margin: int = 0,
    history_length: int = 1024,
    history_use: Literal["max", "most_recent"] = "max",
    amax_axes: tuple[str, ...] = (),
) -> Recipe:
    """Transformer Engine's PyTorch layers: fast fprop, slow dgrad and wgrad.

    The weight gradient is the GEMM (N_out, K_in) of grad^T and lhs. ``amax_axes`` is TE's amax
    reduction group: delayed scaling reduces over it by default there, current scaling does not.
    """
    rule = Scaling(
        timing=scaling,
        history_length=history_length,
        history_use=history_use,
        zero_amax_skips=True,
        unusable="previous" if scaling == "delayed" else "one",
        power_of_two=power_of_two,
        margin=margin,
        amax_axes=amax_axes,
    )
    lhs, rhs, grad = _tensors("te_pytorch", format, rule)
    return Recipe(
        "te_pytorch" if scaling == "delayed" else "te_pytorch_current",
        lhs,
        rhs,
        grad,
        profile="hopper-te",
        provenance="Transformer Engine: common/recipe (delayed_scaling.cu, recipe_common.cuh, "
        "current_scaling.cu), pytorch/module/linear.py",
    )


def te_jax(
    scaling: Literal["delayed", "current"] = "delayed",
    format: Format = "hybrid",
    *,
    high_precision_accumulation: bool = False,
    margin: int = 0,
    history_length: int = 1024,
    history_use: Literal["max", "most_recent"] = "max",
    amax_axes: tuple[str, ...] = (),
) -> Recipe:
    """Transformer Engine's JAX layers: fast accumulation in all three GEMMs.

    The weight gradient is the GEMM (K_in, N_out) of lhs^T and grad, another split-K key than
    PyTorch's. ``high_precision_accumulation`` is what NVTE_FP8_GEMM_HIGH_PRECISION_ACCUMULATION=1
    does: slow in all three. Experimental: no call of TE JAX was recorded.
    """
    rule = Scaling(
        timing=scaling,
        history_length=history_length,
        history_use=history_use,
        nan_amax="ignored" if scaling == "delayed" else "kept",
        unusable="previous" if scaling == "delayed" else "one",
        overflow="infinity",
        margin=margin,
        margin_after_division=True,
        amax_axes=amax_axes,
    )
    fast = not high_precision_accumulation
    lhs, rhs, grad = _tensors("te_jax", format, rule)
    return Recipe(
        "te_jax" if scaling == "delayed" else "te_jax_current",
        lhs,
        rhs,
        grad,
        fprop=Gemm(("lhs", "rhs"), fast),
        dgrad=Gemm(("grad", "rhs"), fast),
        wgrad=Gemm(("lhs", "grad"), fast),
        profile=_TE_JAX,
        provenance="Transformer Engine: jax/quantize/quantizer.py, jax/cpp_extensions/gemm.py",
    )


def torchao_tensorwise(*, power_of_two: bool = False, amax_axes: tuple[str, ...] = ()) -> Recipe:
    """torchao's tensor-wise dynamic scaling: fast fprop, slow gradients, E5M2 gradients."""
    rule = Scaling(
        nan_amax="kept",
        unusable="formula",
        amax_floor=1e-12,
        power_of_two=power_of_two,
        amax_axes=amax_axes,
    )
    lhs, rhs, grad = _tensors("torchao_tensorwise", "hybrid", rule)
    return Recipe(
        "torchao_tensorwise",
        lhs,
        rhs,
        grad,
        profile="hopper",
        provenance="torchao: float8/float8_utils.py, float8/float8_linear.py; torch._scaled_mm",
    )


def flax_direct(
    *, scales: ScaleUse = "folded", history_length: int = 1024, amax_axes: tuple[str, ...] = ()
) -> Recipe:
    """flax.linen.fp8_ops.Fp8DirectDotGeneralOp: fprop at Precision.DEFAULT, gradients at HIGHEST.

    ``scales="folded"`` is what XLA's FP8 rewriter makes of the multiplication that follows each
    dot; "after" is the program as written.
    """
    rule = Scaling(
        timing="delayed",
        history_length=history_length,
        update="before_step",
        nan_amax="kept",
        unusable="previous",
        overflow="infinity",
        convention="inverse",
        amax_axes=amax_axes,
    )
    lhs, rhs, grad = _tensors("flax_direct", "hybrid", rule)
    return Recipe(
        "flax_direct",
        lhs,
        rhs,
        grad,
        scales=scales,
        padding="zeros",
        profile="hopper-xla",
        provenance="flax 0.12: linen/fp8_ops.py; XLA: service/gpu/transforms/gemm_rewriter.cc",
    )


def _tensors(function: str, format: str, rule: Scaling):
    """lhs, rhs and grad."""
    formats = {"hybrid": ("e4m3", "e4m3", "e5m2"), "e4m3": ("e4m3",) * 3}
    if format not in formats:
        raise unknown_option(function, "format", format, formats, "pass format='hybrid'")
    lhs, rhs, grad = (Quantization(name, rule) for name in formats[format])
    return lhs, rhs, grad


_TE_JAX = dataclasses.replace(
    get_profile("hopper-te"),
    name="hopper-te-jax",
    caller="Transformer Engine for JAX",
    evidence="experimental",
    provenance="profile hopper-te; no call of Transformer Engine for JAX was recorded",
)

_RECIPES = {
    recipe.name: recipe
    for recipe in (
        te_pytorch(),
        te_pytorch("current"),
        te_jax(),
        te_jax("current"),
        torchao_tensorwise(),
        flax_direct(),
    )
}


def list_recipes() -> tuple[str, ...]:
    """Names of the shipped recipes."""
    return tuple(_RECIPES)


def get_recipe(recipe: str | Recipe) -> Recipe:
    """The recipe of that name, or the given :class:`Recipe` itself.

    Raises:
        TypeError: neither a name nor a Recipe.
        ValueError: no recipe of that name; the message lists those there are.
    """
    return recipe_argument("get_recipe", recipe)


def recipe_argument(function: str, recipe) -> Recipe:
    """:func:`get_recipe` for ``function``, which the errors name."""
    if isinstance(recipe, Recipe):
        return recipe
    if not isinstance(recipe, str):
        raise TypeError(
            f"{function}: recipe must be a name or a mmaemu_jax.training.Recipe, "
            f"got {type_name(recipe)}."
        )
    if recipe not in _RECIPES:
        way_out = "pass a mmaemu_jax.training.Recipe of your own"
        raise unknown_option(function, "recipe", recipe, _RECIPES, way_out)
    return _RECIPES[recipe]
