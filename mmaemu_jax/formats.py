"""The FP8 formats as data (R1, R2): what a code means, and which names people use for it."""

import dataclasses
import re
from functools import cached_property

import ml_dtypes
import numpy as np


@dataclasses.dataclass(frozen=True)
class Fp8Format:
    """One 8-bit floating-point format; every derived number follows from these fields."""

    #: Short name used in tables, recordings and messages.
    name: str
    #: The numpy / JAX dtype that carries its codes.
    dtype: np.dtype
    #: Stored mantissa bits.
    mantissa_bits: int
    #: Exponent bias.
    bias: int
    #: Largest finite value (what an output saturates to, R18).
    max_finite: float
    #: E5M2 has infinities (IEEE-like); E4M3 spends that code space on finite values.
    has_infinity: bool

    @property
    def emin(self) -> int:
        """Exponent of the smallest normal number, which subnormals share (R2)."""
        return 1 - self.bias

    @cached_property
    def values(self) -> np.ndarray:
        """float64 value of each of the 256 codes."""
        return np.arange(256, dtype=np.uint8).view(self.dtype).astype(np.float64)

    @cached_property
    def largest_code(self) -> int:
        """The code of the largest finite value."""
        return int(np.flatnonzero(self.values == self.max_finite)[0])

    @property
    def emax(self) -> int:
        """Exponent of the largest finite value."""
        return (self.largest_code >> self.mantissa_bits) - self.bias


E4M3 = Fp8Format("e4m3", np.dtype(ml_dtypes.float8_e4m3fn), 3, 7, 448.0, False)
E5M2 = Fp8Format("e5m2", np.dtype(ml_dtypes.float8_e5m2), 2, 15, 57344.0, True)

FORMATS: tuple[Fp8Format, ...] = (E4M3, E5M2)

#: FP8 dtypes that torch accepts as an argument but no reference GPU multiplies (R1, R15).
FOREIGN_FP8_DTYPES: tuple[np.dtype, ...] = tuple(
    np.dtype(getattr(ml_dtypes, name))
    for name in ("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
)

#: What numpy takes for one dtype, perhaps with a byte order.
_DTYPE_NAME = re.compile(r"[<>=|]?[A-Za-z]\w*", re.ASCII)

_BY_NAME = {alias: f for f in FORMATS for alias in (f.name, f.dtype.name)}
_BY_NAME["e4m3fn"] = E4M3


def format_of(dtype) -> Fp8Format | None:
    """The format carried by ``dtype``, or None if it is not one of the two."""
    dtype = np.dtype(dtype)
    return next((f for f in FORMATS if f.dtype == dtype), None)


def format_named(name) -> Fp8Format | None:
    """The format called ``name`` ("e4m3", "e4m3fn", "float8_e4m3fn", a dtype, ...), or None."""
    if isinstance(name, Fp8Format):
        return name
    if isinstance(name, str):
        return _BY_NAME.get(name)
    dtype = as_dtype(name)
    return None if dtype is None else format_of(dtype)


def as_dtype(value) -> np.dtype | None:
    """The dtype that ``value`` is: a dtype, a scalar type or a name; None for anything else.

    Not what ``np.dtype`` makes of containers and of lists in text (a structure, or a SyntaxError)
    or of arrays (their own dtype).
    """
    if not isinstance(value, str | type | np.dtype):
        return None
    if isinstance(value, str) and not _DTYPE_NAME.fullmatch(value):
        return None
    try:
        return np.dtype(value)
    except (TypeError, ValueError):
        return None
