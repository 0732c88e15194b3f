"""Python arguments to plain values: dtypes and flags. Anything of another type is a TypeError."""

from collections.abc import Iterable

import numpy as np

from mmaemu_jax.epilogue import OUTPUT_DTYPES
from mmaemu_jax.errors import message
from mmaemu_jax.formats import FORMATS, Fp8Format, as_dtype, format_named, format_of

#: What people write for the wider output dtypes.
_SHORT_NAMES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "f16": "float16",
    "fp32": "float32",
    "f32": "float32",
}

FP8_NAMES = " or ".join(f.dtype.name for f in FORMATS)
OUTPUT_NAMES = ", ".join(d.name for d in OUTPUT_DTYPES)


def unknown_option(function: str, name: str, value, known, *ways_out: str) -> ValueError:
    """The error for an option value that is not one of ``known``."""
    what = f"{function}: unknown {name} {value!r}; known: {', '.join(known)}."
    return ValueError(message(what, ways_out))


def is_one_of(value, names: Iterable[str]) -> bool:
    """``value`` is one of these names; unlike ``in``, no error for arrays."""
    return isinstance(value, str) and value in names


def type_name(value) -> str:
    """How messages call the type of ``value``."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def dtype_argument(function: str, name: str, value) -> np.dtype:
    """``value`` as a numerical numpy dtype: a dtype, a scalar type, or a name ("e4m3" included)."""
    fp8 = format_named(value) if isinstance(value, str | Fp8Format) else None
    if fp8 is not None:
        return fp8.dtype
    if isinstance(value, str):
        value = _SHORT_NAMES.get(value, value)
    dtype = as_dtype(value)
    if dtype is None or dtype.kind in "OSUMmT" or issubclass(dtype.type, np.void):
        raise TypeError(
            message(
                f"{function}: {name} must be a numerical dtype or its name, got {value!r}.",
                [f"pass for example {name}=jnp.bfloat16 or {name}='bfloat16'"],
            )
        )
    return dtype


def format_argument(function: str, name: str, value) -> Fp8Format:
    """``value`` (a dtype or a name) as one of the two FP8 formats (R1)."""
    dtype = dtype_argument(function, name, value)
    fp8 = format_of(dtype)
    if fp8 is None:
        raise TypeError(
            message(
                f"{function}: {name} must be {FP8_NAMES}, got {dtype.name}.",
                [f"pass {name}='e4m3' or {name}='e5m2'"],
            )
        )
    return fp8


def output_dtype_argument(function: str, name: str, value) -> np.dtype:
    """``value`` as one of the five output dtypes (R18); another dtype is a ValueError."""
    dtype = dtype_argument(function, name, value)
    if dtype not in OUTPUT_DTYPES:
        raise ValueError(
            message(
                f"{function}: {name} must be one of {OUTPUT_NAMES}, got {dtype.name}.",
                [f"pass for example {name}=jnp.bfloat16"],
            )
        )
    return dtype


def flag_argument(function: str, name: str, value) -> bool:
    """``value`` as a bool; numpy's bool counts, numbers and traced values do not."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(
            message(
                f"{function}: {name} must be a bool, got {value!r} of type {type_name(value)}.",
                [f"pass {name}=True or {name}=False (under jax.jit: make it a static argument)"],
            )
        )
    return bool(value)


def name_argument(function: str, name: str, value) -> str:
    """``value`` as a str."""
    if not isinstance(value, str):
        raise TypeError(
            message(
                f"{function}: {name} must be a str, got {value!r} of type {type_name(value)}.",
                [f"pass a name, such as {name}='auto'"],
            )
        )
    return value
