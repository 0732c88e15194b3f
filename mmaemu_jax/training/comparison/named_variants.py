"""The variants that the command knows by name."""

import dataclasses
import functools
from collections.abc import Mapping
from types import MappingProxyType

from jax import lax

from mmaemu_jax.training.comparison.variant import Variant
from mmaemu_jax.training.dot_general import fp8_dot_general
from mmaemu_jax.training.float32_accumulation import float32_dot_general
from mmaemu_jax.training.recipe import GEMM_TENSORS, Gemm, Recipe
from mmaemu_jax.training.recipes import get_recipe, te_pytorch

_RECIPE = get_recipe("te_pytorch_current")
_HYBRID = "E4M3 forward, E5M2 gradients, scaled by the current amax"


def _accumulating(recipe: Recipe, fast: bool) -> Recipe:
    """``recipe`` with the same accumulation in all three GEMMs."""
    gemms = {
        name: dataclasses.replace(recipe.gemm(name), use_fast_accum=fast) for name in GEMM_TENSORS
    }
    mode = "fast" if fast else "slow"
    return dataclasses.replace(
        recipe, **gemms, name=f"{recipe.name}_{mode}", provenance="user-defined"
    )


def _emulated(recipe: Recipe, profile: str, description: str) -> Variant:
    numerics = functools.partial(fp8_dot_general, recipe=recipe, profile=profile)
    return Variant(numerics, description, profile)


def _of_recipe(name: str, description: str) -> Variant:
    """A recipe on the profile that it names itself."""
    recipe = get_recipe(name)
    return Variant(functools.partial(fp8_dot_general, recipe=name), description, recipe.profile)


_WIDE_DGRAD = dataclasses.replace(
    te_pytorch("current"),
    name="te_pytorch_wide_dgrad",
    dgrad=Gemm(("grad", "rhs"), use_fast_accum=False, fp8=False),
    provenance="user-defined",
)

VARIANTS: Mapping[str, Variant] = MappingProxyType(
    {
        "fp8-float32": Variant(
            functools.partial(float32_dot_general, recipe=_RECIPE),
            f"FP8 operands ({_HYBRID}), accumulated in float32 by XLA on this machine",
        ),
        "fp8-float32-halves": Variant(
            functools.partial(float32_dot_general, recipe=_RECIPE, parts=2),
            "the same sums in another order: K is cut into two halves (a control)",
            control=True,
        ),
        "bf16": Variant(lax.dot_general, "no FP8: bfloat16 products by XLA on this machine"),
        "hopper-fast": _emulated(
            _accumulating(_RECIPE, True), "hopper", "H100 PCIe, fast accumulation in all GEMMs"
        ),
        "hopper-slow": _emulated(
            _accumulating(_RECIPE, False), "hopper", "H100 PCIe, slow accumulation in all GEMMs"
        ),
        "hopper-te": _emulated(
            _RECIPE,
            "hopper-te",
            "H100 PCIe as Transformer Engine for PyTorch calls it: fast fprop, slow gradients",
        ),
        "ada": _emulated(
            _RECIPE, "ada", "RTX 4060 with the same recipe: fast fprop, slow gradients"
        ),
        "ada-fast": _emulated(
            _accumulating(_RECIPE, True), "ada", "RTX 4060, fast accumulation in all GEMMs"
        ),
        "hopper-te-jax": _of_recipe(
            "te_jax_current",
            "H100 PCIe as Transformer Engine for JAX calls it: fast accumulation in all GEMMs",
        ),
        "torchao": _of_recipe(
            "torchao_tensorwise", "H100 PCIe as torchao's tensor-wise float8 training calls it"
        ),
        "hopper-e4m3": _emulated(
            te_pytorch("current", "e4m3"), "hopper-te", "as hopper-te, with E4M3 gradients"
        ),
        "hopper-wide-dgrad": _emulated(
            _WIDE_DGRAD, "hopper-te", "as hopper-te, with dgrad in bfloat16 by XLA"
        ),
    }
)

#: What the command compares unless told; the first is the reference.
DEFAULT_VARIANTS = (
    "fp8-float32",
    "fp8-float32-halves",
    "bf16",
    "hopper-fast",
    "hopper-slow",
    "hopper-te",
    "ada",
)
