"""A tensor to FP8 codes, the scale its GEMM gets, and the state after the step."""

import functools
import typing

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mmaemu_jax.formats import Fp8Format
from mmaemu_jax.quantize import float32_bits, multiply_float32, quantize
from mmaemu_jax.reference.epilogue import round_to_half, saturate_to_fp8
from mmaemu_jax.training.division import reciprocal_float32
from mmaemu_jax.training.recipe import Quantization
from mmaemu_jax.training.scaling import ONE, Scaling, amax_bits, history_amax, scale_bits
from mmaemu_jax.training.state import ScaleState

_FLOAT32, _FLOAT16 = np.dtype(np.float32), np.dtype(np.float16)


class Fp8Tensor(typing.NamedTuple):
    """FP8 codes, the inverse of their scale (float32 []) and the state after the step."""

    codes: jax.Array
    inverse: jax.Array
    state: ScaleState | None


@functools.partial(jax.jit, static_argnums=(0, 3))
def cast(
    quantization: Quantization, x: jax.Array, state: ScaleState | None, compute_dtype
) -> Fp8Tensor:
    """``x`` in FP8 as ``quantization`` says.

    Args:
        quantization: format and scaling.
        x: float32, bfloat16 or float16.
        state: of a delayed scaling, else None.
        compute_dtype: the dtype in which the convention "inverse" divides.
    """
    scaling, fp8 = quantization.scaling, quantization.fp8
    scale, inverse, after = _apart(_scales(scaling, fp8, x, state))
    if scaling.convention == "inverse":
        codes = _divide_and_saturate(fp8, x, inverse, np.dtype(compute_dtype))
    else:
        codes = quantize(x, fp8, _float32(scale))
    return Fp8Tensor(codes, _float32(inverse), after)


def _apart(scalars):
    """Keeps XLA from fusing the arithmetic of scales into loops over elements (slow to compile)."""
    return lax.optimization_barrier(scalars)


def _scales(scaling: Scaling, fp8: Fp8Format, x: jax.Array, state: ScaleState | None):
    """The scale and its inverse (float32 bits), and the state after the step."""
    if scaling.timing == "unit":
        one = jnp.full((), ONE, jnp.uint32)
        return one, one, None
    amax = amax_bits(scaling, x)
    if scaling.timing == "current":
        scale = scale_bits(scaling, fp8, amax)
        return scale, reciprocal_float32(scale), None
    assert state is not None
    stored, history = _uint32(state.scale), _uint32(state.amax_history)
    inverted = scaling.convention == "inverse"
    scale = reciprocal_float32(stored) if inverted else stored
    if scaling.update == "before_step":
        scale = scale_bits(scaling, fp8, history_amax(scaling, history), scale)
        after, history = scale, jnp.roll(history, -1).at[0].set(amax)
    else:
        after, history = _after_step(scaling, fp8, amax, scale, history)
    inverse = reciprocal_float32(scale)
    kept = reciprocal_float32(after) if inverted else after
    return scale, inverse, ScaleState(_float32(kept), _float32(history))


def _after_step(scaling: Scaling, fp8: Fp8Format, amax, scale, history):
    """Scale and history for the next step; history[0] is where this step's amax belongs."""
    recorded = history.at[0].set(amax)
    after = scale_bits(scaling, fp8, history_amax(scaling, recorded), scale)
    rolled = jnp.roll(recorded, -1).at[0].set(0)
    if scaling.zero_amax_skips:
        after = jnp.where(amax == 0, scale, after)
        rolled = jnp.where(amax == 0, history, rolled)
    return after, rolled


def _divide_and_saturate(fp8: Fp8Format, x: jax.Array, inverse: jax.Array, dtype: np.dtype):
    """clip(x / inverse) in ``dtype``, as XLA:CPU compiles it: a product with the reciprocal.

    Where it widens bfloat16, the reciprocal stays float32, and the product is the quotient
    itself: one of 8-bit significands is never within two float32 roundings of a midpoint.
    """
    factor = reciprocal_float32(_round_to(dtype, inverse))
    factor = _round_to(_FLOAT16, factor) if dtype == _FLOAT16 else _apart(factor)
    bits = float32_bits(x)
    scaled = multiply_float32(bits if x.dtype == dtype else _round_to(dtype, bits), factor)
    return lax.bitcast_convert_type(saturate_to_fp8(_round_to(dtype, scaled), fp8), fp8.dtype)


def _round_to(dtype: np.dtype, bits: jax.Array) -> jax.Array:
    """float32 bits rounded to ``dtype``, as float32 bits."""
    if dtype == _FLOAT32:
        return bits
    return float32_bits(lax.bitcast_convert_type(round_to_half(bits, dtype), dtype))


def scale_output(y: jax.Array, scale: jax.Array) -> jax.Array:
    """RN(y * scale) in y's dtype, for a ``scale`` (float32 []) that this dtype holds."""
    product = multiply_float32(float32_bits(y), _apart(_uint32(scale)))
    if y.dtype == _FLOAT32:
        return _float32(product)
    return lax.bitcast_convert_type(round_to_half(product, y.dtype), y.dtype)


def folded_scale(dtype, first: jax.Array, second: jax.Array) -> jax.Array:
    """RN32(first * second) rounded to ``dtype``, as float32: one scale for a GEMM."""
    return _float32(_round_to(np.dtype(dtype), multiply_float32(_uint32(first), _uint32(second))))


def _uint32(x: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type(x, jnp.uint32)


def _float32(bits: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type(bits, jnp.float32)
