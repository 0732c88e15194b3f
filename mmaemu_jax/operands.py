"""Arguments to arrays: float32 scales of one element, and the operands of accumulate and dot (R22).

Whatever is not yet a jax.Array is converted by numpy, since XLA would flush subnormal float32.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from mmaemu_jax.arguments import FP8_NAMES, unknown_option
from mmaemu_jax.call import ARRAY_TYPES, Operand, array_operand, scale_operand
from mmaemu_jax.codes import FLOAT_DTYPES, exact_codes
from mmaemu_jax.errors import message
from mmaemu_jax.formats import FORMATS, Fp8Format, format_named

_FLOAT32 = np.dtype(np.float32)


def float32_value(value):
    """``value``, where a Python float is rounded to float32 once."""
    if isinstance(value, float):
        with np.errstate(over="ignore"):  # beyond float32: Inf, as a conversion gives
            return np.float32(value)
    return value


def float32_array(value) -> jax.Array:
    """A float32 array of ``value``, a float32 array or a Python float."""
    return jnp.asarray(float32_value(value), dtype=jnp.float32)


def scale_array(value) -> jax.Array:
    """A checked scale as a float32 array of shape ()."""
    return float32_array(value).reshape(())


def fp8_operand(
    function: str, name: str, value, array_types=ARRAY_TYPES
) -> tuple[Operand, Fp8Format]:
    """What the checks see of an FP8 array, and its format; TypeError for anything else."""
    operand = array_operand(function, name, value, array_types)
    if operand.fp8_format is None:
        raise TypeError(
            message(
                f"{function}: {name} must be {FP8_NAMES}, got {operand}.",
                ["convert it with mmaemu_jax.quantize(x, dtype, scale)"],
            )
        )
    return operand, operand.fp8_format


@dataclasses.dataclass(frozen=True)
class DotOperands:
    """dot's operands as arrays: a, b FP8 [..., K], c float32 [...] or None."""

    a: Any
    b: Any
    c: Any


def dot_operands(
    function: str, a, b, c, fmt, *, asarray=jnp.asarray, array_types=ARRAY_TYPES
) -> DotOperands:
    """The checked operands of dot, see its documentation; errors name ``function``, and ``asarray``
    makes the arrays."""
    formats = _dot_formats(function, fmt)
    of_a = array_operand(function, "a", a, array_types)
    of_b = array_operand(function, "b", b, array_types)
    of_c = None if c is None else scale_operand(function, "c", c, array_types)
    for name, value, operand, fp8 in zip("ab", (a, b), (of_a, of_b), formats, strict=True):
        _check_dot_dtype(function, name, value, operand, fp8)
    if of_c is not None and of_c.dtype != _FLOAT32:
        raise TypeError(
            message(f"{function}: c must be float32, got {of_c}.", ["pass np.float32 values"])
        )
    if of_a.shape != of_b.shape or len(of_a.shape) == 0:
        raise ValueError(
            message(
                f"{function}: a and b must have the same shape [..., K], got {of_a} and {of_b}.",
                [
                    "broadcast first with jnp.broadcast_to",
                    "mmaemu_jax.accumulate multiplies matrices",
                ],
            )
        )
    if of_c is not None and of_c.shape != of_a.shape[:-1]:
        raise ValueError(
            message(
                f"{function}: c must have shape {list(of_a.shape[:-1])}, that of a without K, "
                f"got {of_c}.",
                ["broadcast first with jnp.broadcast_to", "leave c out for +0"],
            )
        )
    return DotOperands(
        asarray(_dot_codes(function, "a", a, of_a, formats[0])),
        asarray(_dot_codes(function, "b", b, of_b, formats[1])),
        None if c is None else asarray(float32_value(c)),
    )


def _dot_formats(function: str, fmt) -> tuple[Fp8Format | None, Fp8Format | None]:
    if fmt is None:
        return None, None
    pair = fmt if isinstance(fmt, tuple | list) else (fmt, fmt)
    if len(pair) != 2:
        raise ValueError(f"{function}: fmt must be one format or a pair of them, got {fmt!r}.")
    a, b = (format_named(name) for name in pair)
    if a is None or b is None:
        known = [f.name for f in FORMATS] + [f.dtype.name for f in FORMATS]
        raise unknown_option(
            function, "fmt", fmt, known, "pass one of these, or a pair for a and b"
        )
    return a, b


def _check_dot_dtype(
    function: str, name: str, value, operand: Operand, fp8: Fp8Format | None
) -> None:
    if operand.fp8_format is not None:
        if fp8 is not None and fp8 is not operand.fp8_format:
            raise ValueError(
                message(
                    f"{function}: fmt says {fp8.name} for {name}, got {operand}.", ["leave fmt out"]
                )
            )
        return
    ways_out = ["convert it with mmaemu_jax.quantize(x, dtype, scale)"]
    if fp8 is None or operand.dtype not in FLOAT_DTYPES:
        ways_out.append("pass fmt with float16, bfloat16, float32 or float64 values")
        raise TypeError(
            message(f"{function}: {name} must be {FP8_NAMES}, got {operand}.", ways_out)
        )
    if isinstance(value, Tracer):
        raise TypeError(
            message(
                f"{function}: with fmt the values of {name} must be concrete, got a traced "
                f"{operand}.",
                [f"convert {name} to {fp8.dtype.name} before jax.jit", *ways_out],
            )
        )


def _dot_codes(function: str, name: str, value, operand: Operand, fp8: Fp8Format | None):
    if operand.fp8_format is None and fp8 is not None:
        return exact_codes(function, name, np.asarray(value), fp8)
    return value
