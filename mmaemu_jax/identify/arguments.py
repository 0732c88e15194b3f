"""The arguments of identify, checked."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from mmaemu_jax.arguments import format_argument, output_dtype_argument, unknown_option
from mmaemu_jax.errors import message
from mmaemu_jax.formats import Fp8Format, format_of
from mmaemu_jax.identify.calls import Interface, Shape
from mmaemu_jax.identify.output import OPERANDS


@dataclasses.dataclass(frozen=True)
class Setting:
    """The checked arguments."""

    interface: Interface
    shapes: tuple[Shape, ...]
    b_layout: Literal["kn", "nk"]


def format_pair(function: str, formats: Any) -> tuple[Fp8Format, Fp8Format]:
    """One format, or a pair of them, as a pair."""
    pair = formats if isinstance(formats, tuple | list) else (formats, formats)
    if len(pair) != 2:
        raise ValueError(
            message(f"{function}: formats must be one format or two, got {formats!r}.", ["'e4m3'"])
        )
    a, b = (format_argument(function, "formats", f) for f in pair)
    return a, b


def checked(
    formats, out_dtype, shapes, budget, operands: Sequence[str], b_layout: Literal["kn", "nk"]
) -> Setting:
    """The arguments as values; the errors are those of identify."""
    pair = format_pair("identify", formats)
    dtype = output_dtype_argument("identify", "out_dtype", out_dtype)
    sizes = tuple(_shape(shape) for shape in shapes)
    if not sizes:
        raise ValueError(message("identify: shapes is empty.", ["shapes=[(256, 256, 4096)]"]))
    if isinstance(budget, bool) or not isinstance(budget, int):
        raise TypeError(f"identify: budget must be an int, got {budget!r}.")
    if budget < 1:
        raise ValueError(message(f"identify: budget is {budget}.", ["allow at least one call"]))
    for name in operands:
        if name not in OPERANDS:
            raise unknown_option("identify", "operand", name, OPERANDS, "leave it out")
    if b_layout not in ("kn", "nk"):
        raise unknown_option("identify", "b_layout", b_layout, ("kn", "nk"), "b_layout='kn'")
    if "scale_result" in operands and format_of(dtype) is None:
        raise ValueError(
            message(
                f"identify: scale_result belongs to an FP8 output, got {dtype.name} (R18).",
                ["leave scale_result out of operands"],
            )
        )
    interface = Interface(pair, dtype, tuple(n for n in OPERANDS if n in operands))
    return Setting(interface, sizes, b_layout)


def _shape(shape) -> Shape:
    sizes = tuple(int(n) for n in shape)
    if len(sizes) != 3 or min(sizes) < 1:
        raise ValueError(
            message(
                f"identify: a shape must be three positive numbers (M, N, K), got {shape!r}.",
                ["shapes=[(256, 256, 4096)]"],
            )
        )
    return sizes[0], sizes[1], sizes[2]
