"""From a tensor to its FP8 scale, as data: how amax is taken, and what becomes of it.

The arithmetic is on bit patterns (uint32 of float32): XLA's maximum loses NaN, its division
multiplies by a reciprocal and its CPU programs flush subnormals, none of which may reach a
scale (R26).
"""

import dataclasses
import math
import typing
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mmaemu_jax.arguments import is_one_of, type_name, unknown_option
from mmaemu_jax.errors import message
from mmaemu_jax.formats import Fp8Format
from mmaemu_jax.quantize import float32_bits, multiply_float32
from mmaemu_jax.reference._f64 import F32_INF
from mmaemu_jax.training.division import ONE, divide_float32

Timing = Literal["current", "delayed", "unit"]
NanAmax = Literal["ignored", "kept"]
Unusable = Literal["one", "previous", "formula"]
Overflow = Literal["largest", "infinity"]
Convention = Literal["scale", "inverse"]
Update = Literal["after_step", "before_step"]

_LARGEST = 0x7F7FFFFF


@dataclasses.dataclass(frozen=True)
class Scaling:
    """How a tensor's quantisation scale (about largest FP8 value / amax) is computed.

    Attributes:
        timing: "current": from this tensor; "delayed": from the amaxes of earlier steps, kept in
            a state; "unit": always 1.
        history_length: amaxes that a delayed scale looks back on.
        history_use: "max" of the history, or the "most_recent" amax.
        update: when a delayed scale is recomputed. "after_step": from a history that has the
            step's own amax, for the next step (history[0] is then the empty slot of the next
            amax, history[-1] the newest); "before_step": from the history of earlier steps, for
            this one (history[0] is the newest).
        zero_amax_skips: a step whose amax is 0 leaves state and history alone ("after_step").
        nan_amax: NaN elements are "ignored" by amax, or "kept": amax is then NaN.
        unusable: the scale where amax is 0, Inf or NaN: "one", the "previous" one (delayed), or
            what the "formula" gives.
        amax_floor: a smaller amax counts as this.
        overflow: what a quotient beyond float32 becomes: the "largest" float32 or "infinity".
        power_of_two: the scale is truncated to a power of two.
        margin: the scale is divided by 2^margin.
        margin_after_division: the quotient is divided by it, not the largest FP8 value (which
            differs where the quotient overflows).
        convention: "scale": x * scale in float32, and the GEMM gets RN(1 / scale);
            "inverse": state and GEMM hold RN(1 / scale), and x is divided by it in the dtype of
            the weights (for a gradient: of the result), as XLA compiles that division.
        amax_axes: mesh axes of a shard_map over which amax is reduced; () is this device's own.

    Raises:
        TypeError, ValueError: a field of the wrong type or value, or fields that contradict.
    """

    timing: Timing = "current"
    history_length: int = 1024
    history_use: Literal["max", "most_recent"] = "max"
    update: Update = "after_step"
    zero_amax_skips: bool = False
    nan_amax: NanAmax = "ignored"
    unusable: Unusable = "one"
    amax_floor: float = 0.0
    overflow: Overflow = "largest"
    power_of_two: bool = False
    margin: int = 0
    margin_after_division: bool = False
    convention: Convention = "scale"
    amax_axes: tuple[str, ...] = ()

    def __post_init__(self):
        for field in dataclasses.fields(self):
            _check_field(field, getattr(self, field.name))
        if not 1 <= self.history_length <= 1 << 20:
            raise _wrong("history_length", self.history_length, "1..2^20")
        if not 0 <= self.margin <= 100:
            raise _wrong("margin", self.margin, "0..100")
        if not 0.0 <= self.amax_floor < math.inf:
            raise _wrong("amax_floor", self.amax_floor, "finite values from 0")
        if self.unusable == "previous" and self.timing != "delayed":
            raise ValueError(
                message(
                    f"Scaling: unusable='previous' needs a state, got timing={self.timing!r}.",
                    ["pass timing='delayed'", "pass unusable='one' or unusable='formula'"],
                )
            )


def _check_field(field: dataclasses.Field, value) -> None:
    choices = typing.get_args(field.type)
    if typing.get_origin(field.type) is Literal:
        if not is_one_of(value, choices):
            way_out = f"pass {field.name}={choices[0]!r}"
            raise unknown_option("Scaling", field.name, value, choices, way_out)
    elif field.name == "amax_axes":
        if not isinstance(value, tuple) or not all(isinstance(axis, str) for axis in value):
            raise _wrong_type(field.name, "a tuple of mesh axis names", value)
    elif isinstance(value, bool) != (field.type is bool) or not isinstance(
        value, int | float if field.type is float else typing.cast(type, field.type)
    ):
        raise _wrong_type(field.name, getattr(field.type, "__name__", str(field.type)), value)


def _wrong_type(name: str, wanted: str, value) -> TypeError:
    return TypeError(f"Scaling: {name} must be {wanted}, got {value!r} ({type_name(value)}).")


def _wrong(name: str, value, allowed: str) -> ValueError:
    return ValueError(
        message(f"Scaling: {name} must be in {allowed}, got {value!r}.", ["leave it out"])
    )


# --------------------------------------------------------------------------------- the arithmetic


def amax_bits(scaling: Scaling, x: jax.Array) -> jax.Array:
    """The largest |x| as float32 bits (uint32, shape ()): 0 of no elements; subnormals count."""
    magnitude = float32_bits(x) & jnp.uint32(0x7FFFFFFF)
    if scaling.nan_amax == "ignored":
        magnitude = jnp.where(magnitude > F32_INF, jnp.uint32(0), magnitude)
    amax = jnp.max(magnitude, initial=jnp.uint32(0))
    return lax.pmax(amax, scaling.amax_axes) if scaling.amax_axes else amax


def scale_bits(
    scaling: Scaling, fp8: Fp8Format, amax: jax.Array, previous: jax.Array | None = None
) -> jax.Array:
    """The quantisation scale (float32 bits) that follows from ``amax`` (float32 bits).

    ``previous`` is the scale that ``unusable="previous"`` keeps.
    """
    largest = fp8.max_finite
    if not scaling.margin_after_division:
        largest *= 2.0**-scaling.margin
    scale = divide_float32(jnp.full_like(amax, _bits(largest)), amax)
    if scaling.amax_floor > 0:
        floored = jnp.full_like(amax, _bits(largest / scaling.amax_floor))
        scale = jnp.where(amax < _first_at_least(scaling.amax_floor), floored, scale)
    if scaling.margin_after_division:
        scale = multiply_float32(scale, jnp.full_like(scale, _bits(2.0**-scaling.margin)))
    if scaling.overflow == "largest":
        scale = jnp.where(scale == F32_INF, jnp.uint32(_LARGEST), scale)
    if scaling.power_of_two:
        scale = scale & jnp.uint32(0xFF800000)
    if scaling.unusable == "formula":
        return scale
    usable = amax < F32_INF
    if scaling.amax_floor == 0:
        usable = usable & (amax > 0)
    instead = jnp.full_like(amax, ONE) if scaling.unusable == "one" else previous
    assert instead is not None
    return jnp.where(usable, scale, instead)


def _bits(value: float) -> int:
    """RN32 of a float64 as an int of its bits."""
    with np.errstate(over="ignore"):
        return int(np.float32(value).view(np.uint32))


def _first_at_least(value: float) -> int:
    """Bits of the smallest float32 that is at least ``value``."""
    nearest = np.float32(value)
    return _bits(value) + (float(nearest) < value)


def history_amax(scaling: Scaling, history: jax.Array) -> jax.Array:
    """What a delayed scale sees of ``history`` (float32 bits [L], the newest at 0)."""
    if scaling.history_use == "most_recent":
        return history[0]
    if scaling.nan_amax == "ignored":
        history = jnp.where(history > F32_INF, jnp.uint32(0), history)
    return jnp.max(history)
