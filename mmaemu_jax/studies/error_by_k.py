"""Error of an FP8 matrix product by K, for each way to accumulate, against exact sums."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from mmaemu_jax.api import accumulate
from mmaemu_jax.arguments import format_argument, unknown_option
from mmaemu_jax.errors import message
from mmaemu_jax.formats import format_of
from mmaemu_jax.platforms import Profile, get_profile
from mmaemu_jax.studies.distributions import draw_codes, sampler_argument

_FUNCTION = "error_by_k"

#: K of the study unless told: up to what a large model's layer has.
DEFAULT_K: tuple[int, ...] = (32, 128, 512, 1024, 2048, 4096, 8192, 16384)


@dataclasses.dataclass(frozen=True)
class AccumulationError:
    """How far one way to accumulate is off, over all outputs of one product.

    Attributes:
        distribution, k, accumulation, profile: what was computed; see :func:`error_by_k`.
        norm_error: norm of the error over the norm of the exact result.
        largest_error: the largest error over the root mean square of the exact results.
        median_relative_error: the median of error over exact result, element by element.
        bias: sum of the errors along the sign of the exact result, over the sum of its magnitudes:
            negative where results are too small.
        differing_bf16: share of the outputs whose bits differ, after rounding to bfloat16, from
            those of the exact result.
    """

    distribution: str
    k: int
    accumulation: str
    profile: str
    norm_error: float
    largest_error: float
    median_relative_error: float
    bias: float
    differing_bf16: float


def _emulated(use_fast_accum: bool) -> Callable[..., np.ndarray]:
    def compute(a: jax.Array, b: jax.Array, exact: np.ndarray, profile: Profile) -> np.ndarray:
        result = accumulate(a, b, use_fast_accum=use_fast_accum, profile=profile, splitk=1)
        return np.asarray(result, np.float64)

    return compute


def _float32(a: jax.Array, b: jax.Array, exact: np.ndarray, profile: Profile) -> np.ndarray:
    return np.asarray(float32_product(a, b), np.float64)


def _rounded(a: jax.Array, b: jax.Array, exact: np.ndarray, profile: Profile) -> np.ndarray:
    return _to_bfloat16(exact).astype(np.float64)


ACCUMULATIONS: Mapping[str, Callable[..., np.ndarray]] = MappingProxyType(
    {
        "fast": _emulated(True),
        "slow": _emulated(False),
        "float32": _float32,
        "exact, to bfloat16": _rounded,
    }
)


def float32_product(a: jax.Array, b: jax.Array) -> jax.Array:
    """XLA's own product of FP8 a [M, K] and b [N, K], accumulated in float32."""
    return lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)


def exact_product(a, b) -> np.ndarray:
    """a @ b.T of FP8 a [M, K] and b [N, K] in float64 [M, N], every operation exact.

    Raises:
        TypeError: operands that are not FP8.
        ValueError: values that are not finite, or whose sums float64 might not hold.
    """
    a, b = np.asarray(a), np.asarray(b)
    if format_of(a.dtype) is None or format_of(b.dtype) is None:
        raise TypeError(f"exact_product: a and b must be FP8, got {a.dtype} and {b.dtype}.")
    a, b = a.astype(np.float64), b.astype(np.float64)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError("exact_product: a and b must be finite.")
    # Every partial sum is a multiple of the two grids' product and at most K largest products.
    largest = np.abs(a).max(initial=0.0) * np.abs(b).max(initial=0.0) * a.shape[-1]
    if largest > 2.0**53 * _grid(a) * _grid(b):
        raise ValueError(
            message(
                f"exact_product: sums of {a.shape[-1]} such products can need more than 53 bits.",
                ["take a smaller K", "take E4M3 operands: they are exact up to K = 131072"],
            )
        )
    return a @ b.T


def _grid(x: np.ndarray) -> float:
    """The largest power of two that every element is a multiple of; 1 for zeros alone."""
    significand, exponent = np.frexp(x[x != 0])
    bits = (np.abs(significand) * 16).astype(np.int64)  # at most 4 significant bits
    return float(np.min(np.ldexp((bits & -bits).astype(np.float64), exponent - 4), initial=1.0))


def _to_bfloat16(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32).astype(ml_dtypes.bfloat16)


def error_by_k(
    k: Iterable[int] = DEFAULT_K,
    distribution="normal",
    *,
    accumulations: Iterable[str] = tuple(ACCUMULATIONS),
    m: int = 128,
    n: int = 128,
    a_dtype="e4m3",
    b_dtype="e4m3",
    profile: str | Profile | None = None,
    seed: int = 0,
) -> list[AccumulationError]:
    """Errors of [m, K] x [K, n] against the exact product, unsplit, for each K and accumulation.

    Args:
        k: the values of K.
        distribution: of both operands, a name in DISTRIBUTIONS or a function (rng, shape) ->
            array; the values are scaled to the format's range, then quantised.
        accumulations: "fast" and "slow" as the profile does them (R10, R11), "float32" as XLA's
            own dot on this machine, "exact, to bfloat16" the rounding of the exact sum alone.
        m, n: number of outputs.
        a_dtype, b_dtype: FP8 formats.
        profile: whose fast and slow; None is the default profile.
        seed: of the operands; each K has draws of its own.

    Raises:
        TypeError, ValueError: a wrong argument, sums that float64 cannot hold.
        UnsupportedFeatureError: "slow" on a profile where it was never characterised.
    """
    name, sampler = sampler_argument(_FUNCTION, distribution)
    formats = (
        format_argument(_FUNCTION, "a_dtype", a_dtype),
        format_argument(_FUNCTION, "b_dtype", b_dtype),
    )
    platform = get_profile(profile)
    wanted = tuple(accumulations)
    for way in wanted:
        if way not in ACCUMULATIONS:
            raise unknown_option(_FUNCTION, "accumulation", way, ACCUMULATIONS)
    rows = []
    for depth in _positive_ints(k):
        rng = np.random.default_rng([seed, depth])
        a, b = (
            draw_codes(sampler, rng, (count, depth), fp8)
            for count, fp8 in zip((m, n), formats, strict=True)
        )
        exact = exact_product(a, b)
        for way in wanted:
            result = ACCUMULATIONS[way](a, b, exact, platform)
            rows.append(_measure(name, depth, way, platform.name, result, exact))
    return rows


def _positive_ints(k: Iterable[int]) -> list[int]:
    depths = list(k)
    for depth in depths:
        if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1:
            raise ValueError(f"{_FUNCTION}: each K must be a positive int, got {depth!r}.")
    return depths


def _measure(
    name: str, k: int, way: str, profile: str, result: np.ndarray, exact: np.ndarray
) -> AccumulationError:
    error = result - exact
    size = np.abs(exact)
    nonzero = size > 0
    relative = np.abs(error[nonzero]) / size[nonzero]
    differing = _to_bfloat16(result).view(np.uint16) != _to_bfloat16(exact).view(np.uint16)
    total, norm = float(size.sum()), float(np.linalg.norm(exact))
    return AccumulationError(
        distribution=name,
        k=k,
        accumulation=way,
        profile=profile,
        norm_error=_ratio(float(np.linalg.norm(error)), norm),
        largest_error=_ratio(float(np.abs(error).max()), norm / exact.size**0.5),
        median_relative_error=float(np.median(relative)) if relative.size else 0.0,
        bias=_ratio(float((error * np.sign(exact)).sum()), total),
        differing_bf16=float(differing.mean()),
    )


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
