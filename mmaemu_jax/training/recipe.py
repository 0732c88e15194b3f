"""A recipe: what a framework computes for one linear layer, as data.

It says how each of three tensors becomes FP8 (lhs: the activations, rhs: the weights,
grad: the gradient of the result) and how each of three GEMMs multiplies two of them.
"""

import dataclasses
import typing
from typing import Literal

from mmaemu_jax.arguments import is_one_of, output_dtype_argument, type_name, unknown_option
from mmaemu_jax.errors import message
from mmaemu_jax.formats import FORMATS, Fp8Format, format_named
from mmaemu_jax.platforms import Profile, profile_argument
from mmaemu_jax.training.scaling import Scaling

Tensor = Literal["lhs", "rhs", "grad"]
ScaleUse = Literal["operands", "folded", "after"]
Padding = Literal["refuse", "zeros"]

#: The two tensors that each GEMM multiplies.
GEMM_TENSORS = {
    "fprop": ("lhs", "rhs"),
    "dgrad": ("grad", "rhs"),
    "wgrad": ("grad", "lhs"),
}
_WIDE_OUTPUTS = ("bfloat16", "float16", "float32")


def _check_type(owner: str, field: str, value, kind: type) -> None:
    if not isinstance(value, kind):
        raise TypeError(
            f"{owner}: {field} must be {kind.__name__}, got {value!r} ({type_name(value)})."
        )


@dataclasses.dataclass(frozen=True)
class Quantization:
    """How one tensor becomes FP8.

    Attributes:
        format: "e4m3", "e5m2", a dtype or an :class:`Fp8Format`; becomes the latter's name.
        scaling: how its scale is computed.

    Raises:
        TypeError, ValueError: an unknown format, not a Scaling.
    """

    format: str
    scaling: Scaling = dataclasses.field(default_factory=Scaling)

    def __post_init__(self):
        fp8 = format_named(self.format)
        if fp8 is None:
            known = [f.name for f in FORMATS]
            raise unknown_option("Quantization", "format", self.format, known, "pass 'e4m3'")
        object.__setattr__(self, "format", fp8.name)
        _check_type("Quantization", "scaling", self.scaling, Scaling)

    @property
    def fp8(self) -> Fp8Format:
        """The format itself."""
        fp8 = format_named(self.format)
        assert fp8 is not None
        return fp8


@dataclasses.dataclass(frozen=True)
class Gemm:
    """How one of the three products is computed.

    Attributes:
        operands: the two tensors, in the order of the call: the first has the rows of the result.
            The order changes no product but the shape and formats that the split is decided on.
        use_fast_accum: fast or slow accumulation (R10, R11).
        fp8: False leaves this product to XLA, in the dtype of the unquantised tensors.
        out_dtype: the dtype the GEMM rounds to; None is that of the result (the gradient's is
            its primal's). The result is then converted.

    Raises:
        TypeError, ValueError: a field of the wrong type or value.
    """

    operands: tuple[Tensor, Tensor]
    use_fast_accum: bool
    fp8: bool = True
    out_dtype: str | None = None

    def __post_init__(self):
        for field in ("use_fast_accum", "fp8"):
            _check_type("Gemm", field, getattr(self, field), bool)
        if self.out_dtype is not None:
            dtype = output_dtype_argument("Gemm", "out_dtype", self.out_dtype)
            if dtype.name not in _WIDE_OUTPUTS:
                raise unknown_option(
                    "Gemm", "out_dtype", dtype.name, _WIDE_OUTPUTS, "pass out_dtype='bfloat16'"
                )
            object.__setattr__(self, "out_dtype", dtype.name)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """One framework's FP8 linear layer; a user's own recipe works everywhere a name does.

    Attributes:
        name: how it is called.
        lhs, rhs, grad: how each tensor becomes FP8.
        fprop: the product itself; lhs and rhs.
        dgrad: the gradient of lhs; grad and rhs.
        wgrad: the gradient of rhs; grad and lhs.
        scales: where the inverse scales go. "operands": to the GEMM as its scales (R16);
            "folded": their product, rounded to the output dtype, is one of the GEMM's scales, as
            XLA folds a multiplication that follows; "after": the output is multiplied by it.
        padding: what happens to dimensions that are not multiples of 16: "refuse", or "zeros".
        profile: whose GEMMs these are, where the caller names no profile.
        provenance: where all of this comes from.

    Raises:
        TypeError, ValueError: a field of the wrong type or value, E5M2 times E5M2.
    """

    name: str
    lhs: Quantization
    rhs: Quantization
    grad: Quantization
    fprop: Gemm = Gemm(("lhs", "rhs"), use_fast_accum=True)
    dgrad: Gemm = Gemm(("grad", "rhs"), use_fast_accum=False)
    wgrad: Gemm = Gemm(("grad", "lhs"), use_fast_accum=False)
    scales: ScaleUse = "operands"
    padding: Padding = "refuse"
    profile: str | Profile = "hopper"
    provenance: str = "user-defined"

    def __post_init__(self):
        for field in ("name", "provenance"):
            _check_type("Recipe", field, getattr(self, field), str)
        for field in ("lhs", "rhs", "grad"):
            _check_type("Recipe", field, getattr(self, field), Quantization)
        for field, choices in (("scales", ScaleUse), ("padding", Padding)):
            known = typing.get_args(choices)
            if not is_one_of(getattr(self, field), known):
                way_out = f"pass {field}={known[0]!r}"
                raise unknown_option("Recipe", field, getattr(self, field), known, way_out)
        profile_argument("Recipe", self.profile)
        for gemm in GEMM_TENSORS:
            self._check_gemm(gemm)

    def _check_gemm(self, name: str) -> None:
        gemm, tensors = getattr(self, name), GEMM_TENSORS[name]
        _check_type("Recipe", name, gemm, Gemm)
        if gemm.operands not in (tensors, tensors[::-1]):
            raise ValueError(
                message(
                    f"Recipe: {name} multiplies {tensors[0]} and {tensors[1]}, got operands "
                    f"{gemm.operands!r}.",
                    [f"pass operands={tensors} or operands={tensors[::-1]}"],
                )
            )
        if gemm.fp8 and all(self.quantization(t).format == "e5m2" for t in tensors):
            raise ValueError(
                message(
                    f"Recipe: {name} would multiply e5m2 by e5m2, which no reference GPU does.",
                    [
                        f"make {tensors[0]} or {tensors[1]} e4m3",
                        f"pass {name}=Gemm(..., fp8=False)",
                    ],
                )
            )

    def quantization(self, tensor: str) -> Quantization:
        """The quantization of "lhs", "rhs" or "grad"."""
        return getattr(self, tensor)

    def gemm(self, name: str) -> Gemm:
        """The "fprop", "dgrad" or "wgrad" GEMM."""
        return getattr(self, name)

    @property
    def delayed(self) -> tuple[str, ...]:
        """The tensors that are scaled with delay, and so need a state."""
        names = typing.get_args(Tensor)
        return tuple(t for t in names if self.quantization(t).scaling.timing == "delayed")
