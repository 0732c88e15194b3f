"""Where the operands of a study come from: a name, or a function of the user's own."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np

from mmaemu_jax.arguments import type_name, unknown_option
from mmaemu_jax.errors import message
from mmaemu_jax.formats import Fp8Format
from mmaemu_jax.quantize import quantize

#: (generator, shape) -> real values of that shape.
Sampler = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def _normal(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.standard_normal(shape)


def _uniform(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.uniform(-1.0, 1.0, shape)


def _non_negative(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.uniform(0.0, 1.0, shape)


def _heavy_tailed(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Student's t with 4 degrees of freedom: a few outliers, as activations have."""
    return rng.standard_t(4, shape)


DISTRIBUTIONS: Mapping[str, Sampler] = MappingProxyType(
    {
        "normal": _normal,
        "uniform": _uniform,
        "non-negative": _non_negative,
        "heavy-tailed": _heavy_tailed,
    }
)


def sampler_argument(function: str, distribution: str | Sampler) -> tuple[str, Sampler]:
    """Name and sampler of ``distribution``, a name or a function (rng, shape) -> array."""
    if isinstance(distribution, str):
        if distribution not in DISTRIBUTIONS:
            way_out = "pass a function (rng, shape) -> array"
            raise unknown_option(function, "distribution", distribution, DISTRIBUTIONS, way_out)
        return distribution, DISTRIBUTIONS[distribution]
    if not callable(distribution):
        raise TypeError(
            message(
                f"{function}: distribution must be a name or a function (rng, shape) -> array, "
                f"got {type_name(distribution)}.",
                [f"pass one of {', '.join(DISTRIBUTIONS)}"],
            )
        )
    return getattr(distribution, "__name__", "distribution"), distribution


def draw_codes(
    sampler: Sampler, rng: np.random.Generator, shape: tuple[int, int], fp8: Fp8Format
) -> jax.Array:
    """FP8 values of that shape, scaled so that the largest magnitude is the format's largest.

    Raises:
        ValueError: the sampler returned another shape, or a value that is not finite.
    """
    values = np.asarray(sampler(rng, shape), np.float64)
    if values.shape != shape or not np.isfinite(values).all():
        raise ValueError(
            f"a distribution must return finite values of shape {shape}, got shape {values.shape}, "
            f"{np.count_nonzero(~np.isfinite(values))} of them not finite."
        )
    largest = np.abs(values).max(initial=0.0)
    scale = fp8.max_finite / largest if largest else 1.0
    return quantize(jnp.asarray(values * scale, jnp.float32), fp8.dtype)
