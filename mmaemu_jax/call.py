"""The arguments of a call as the checks see them: shapes and dtypes of the right Python types."""

import dataclasses
import math

import jax
import numpy as np

from mmaemu_jax.arguments import dtype_argument, flag_argument, type_name
from mmaemu_jax.errors import message
from mmaemu_jax.formats import Fp8Format, format_of

#: What counts as an array of a call that computes.
ARRAY_TYPES = (jax.Array, np.ndarray, np.generic)

_FLOAT32 = np.dtype(np.float32)


@dataclasses.dataclass(frozen=True)
class Operand:
    """What the checks see of an array."""

    shape: tuple
    dtype: np.dtype

    def __str__(self) -> str:
        return f"{self.dtype} of shape {self.shape}"

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def fp8_format(self) -> Fp8Format | None:
        """The FP8 format; None for any other dtype, JAX's extended ones included."""
        return format_of(self.dtype) if isinstance(self.dtype, np.dtype) else None


@dataclasses.dataclass(frozen=True)
class ScaledMmCall:
    """The arguments of a scaled_mm call, of the right Python types."""

    input: Operand
    mat2: Operand
    scale_a: Operand
    scale_b: Operand
    bias: Operand | None
    scale_result: Operand | None
    out_dtype: np.dtype
    use_fast_accum: bool

    @property
    def rowwise(self) -> bool:
        """The scales are not tensor-wise (then only [M, 1] and [1, N] pass the checks)."""
        return not (self.scale_a.size == 1 and self.scale_b.size == 1)

    @property
    def M(self) -> int:
        return self.input.shape[0]

    @property
    def N(self) -> int:
        return self.mat2.shape[1]

    @property
    def K(self) -> int:
        return self.input.shape[1]

    @property
    def is_empty(self) -> bool:
        """A dimension is zero (R15); symbolic dimensions count as nonzero."""
        return any(dim == 0 for dim in (self.M, self.N, self.K))


def array_operand(function: str, name: str, value, array_types=ARRAY_TYPES) -> Operand:
    """The shape and dtype of a jax or numpy array; TypeError for anything else."""
    if not isinstance(value, array_types):
        raise TypeError(
            message(
                f"{function}: {name} must be a jax or numpy array, got {type_name(value)}.",
                ["convert it with jnp.asarray(..., dtype=...)"],
            )
        )
    return Operand(tuple(value.shape), value.dtype)


def scale_operand(function: str, name: str, value, array_types=ARRAY_TYPES) -> Operand:
    """The same for a scale, which may also be a numpy scalar or a Python float (as float32)."""
    if isinstance(value, array_types):  # np.float64 is also a float
        return Operand(tuple(value.shape), value.dtype)
    if isinstance(value, float):
        return Operand((), _FLOAT32)
    raise TypeError(
        message(
            f"{function}: {name} must be a float32 array of one element, a numpy float32 scalar or "
            f"a Python float, got {value!r} of type {type_name(value)}.",
            [f"pass {name}=1.0 for no scaling", f"pass {name}=jnp.float32(...)"],
        )
    )


def scaled_mm_call(
    function,
    input,
    mat2,
    scale_a,
    scale_b,
    bias,
    scale_result,
    out_dtype,
    use_fast_accum,
    array_types=ARRAY_TYPES,
) -> ScaledMmCall:
    """The call, if every argument has the right Python type (else TypeError)."""

    def array(name, value):
        return array_operand(function, name, value, array_types)

    def scale(name, value):
        return scale_operand(function, name, value, array_types)

    a, b = array("input", input), array("mat2", mat2)
    sa, sb = scale("scale_a", scale_a), scale("scale_b", scale_b)
    c = None if bias is None else array("bias", bias)
    sr = None if scale_result is None else scale("scale_result", scale_result)
    out = a.dtype if out_dtype is None else dtype_argument(function, "out_dtype", out_dtype)
    fast = flag_argument(function, "use_fast_accum", use_fast_accum)
    return ScaledMmCall(a, b, sa, sb, c, sr, out, fast)
