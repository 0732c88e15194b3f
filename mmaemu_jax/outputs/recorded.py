"""One recorded FP8 GEMM: operands, scales, options and output; as a value and as a file."""

import dataclasses
import os
import pathlib
import zipfile
from typing import Any

import numpy as np

from mmaemu_jax.arguments import (
    flag_argument,
    format_argument,
    is_one_of,
    output_dtype_argument,
    unknown_option,
)
from mmaemu_jax.atomic_file import write_atomically
from mmaemu_jax.errors import UnsupportedFeatureError, message
from mmaemu_jax.testing.bits import bits_of

_REQUIRED = (
    *("a", "b", "a_dtype", "b_dtype", "scale_a", "scale_b"),
    *("out", "out_dtype", "use_fast_accum"),
)
_OPTIONAL = ("name", "scale_result", "bias", "bias_dtype", "b_layout", "M", "N")
_LAYOUTS = ("nk", "kn")


@dataclasses.dataclass(frozen=True, eq=False)
class RecordedGemm:
    """One FP8 GEMM out = (a @ b.T) * scale_a * scale_b as it ran somewhere.

    Attributes:
        name: which call of the model.
        a: float8 [M, K], or some rows of it (then ``M`` is given).
        b: float8 [N, K], or some rows of it (then ``N`` is given).
        out: what came out, in an output dtype of R18: a row for each of ``a``, a column for each
            of ``b``.
        scale_a, scale_b: float32 scalars that multiply (R16).
        use_fast_accum: as the call had it (R10, R11).
        scale_result: float32 scalar of an FP8 output (R18), or None.
        bias: [N] (as many elements as ``b`` has rows), or None.
        M, N: of the whole call, by which the split of K is decided; None: as given here.

    Arrays may be JAX's; they are kept as numpy's.

    Raises:
        TypeError, ValueError: an array of another dtype or shape, another wrong argument.
        UnsupportedFeatureError: scales of rows or blocks.
    """

    name: str
    a: np.ndarray
    b: np.ndarray
    out: np.ndarray
    scale_a: Any
    scale_b: Any
    use_fast_accum: bool
    scale_result: Any = None
    bias: Any = None
    M: int | None = None
    N: int | None = None

    def __post_init__(self):
        function = "RecordedGemm"
        values: dict[str, Any] = {
            name: np.asarray(getattr(self, name)) for name in ("a", "b", "out")
        }
        a, b, out = values["a"], values["b"], values["out"]
        for name in ("a", "b"):
            format_argument(function, name, values[name].dtype)
        output_dtype_argument(function, "out", out.dtype)
        are_matrices = a.ndim == b.ndim == 2
        if not are_matrices or a.shape[1] != b.shape[1] or out.shape != (len(a), len(b)):
            raise ValueError(_shapes_do_not_fit(self.name, a.shape, b.shape, out.shape))
        for name in ("scale_a", "scale_b", "scale_result"):
            scale = getattr(self, name)
            values[name] = None if scale is None else _scale(self.name, name, scale)
        if self.bias is not None:
            values["bias"] = _bias(self.name, self.bias, len(b))
        values["use_fast_accum"] = flag_argument(function, "use_fast_accum", self.use_fast_accum)
        for name, array in (("M", a), ("N", b)):
            values[name] = _dimension(self.name, name, getattr(self, name), len(array))
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(M, N, K) of the whole call."""
        assert self.M is not None, "set when it was made"
        assert self.N is not None, "likewise"
        return self.M, self.N, self.a.shape[1]


def _shapes_do_not_fit(name, a, b, out) -> str:
    return message(
        f"RecordedGemm {name!r}: a [M, K], b [N, K] and out [M, N] do not fit: {a}, {b}, {out}.",
        ["b_layout='kn' in a file for b [K, N]", "fold leading dimensions of a and out into M"],
    )


def _dimension(gemm: str, name: str, value: int | None, given: int) -> int:
    size = given if value is None else int(value)
    if size < given:
        what = f"RecordedGemm {gemm!r}: {name} = {size}, but there are {given} of them."
        raise ValueError(message(what, [f"{name} is that of the whole call", "leave it out"]))
    return size


def _scale(gemm: str, name: str, value) -> np.float32:
    scale = np.asarray(value)
    if scale.size != 1:
        raise UnsupportedFeatureError(
            message(
                f"RecordedGemm {gemm!r}: {name} has shape {scale.shape}; scales of rows, columns "
                "or blocks are not modelled, one for each tensor is.",
                [
                    "record the same layer with tensor-wise scales",
                    "mmaemu_jax.accumulate gives the unscaled float32 accumulators of any operands",
                ],
            )
        )
    if scale.dtype != np.float32 and not isinstance(value, float):
        raise TypeError(
            message(
                f"RecordedGemm {gemm!r}: {name} must be float32, got {scale.dtype}.",
                ["record the float32 scalar that the GEMM got"],
            )
        )
    return np.float32(scale.reshape(()))


def _bias(gemm: str, value, n: int) -> np.ndarray:
    bias = np.asarray(value)
    if bias.dtype.name not in ("bfloat16", "float16", "float32") or bias.size != n:
        raise ValueError(
            message(
                f"RecordedGemm {gemm!r}: bias must be bfloat16, float16 or float32 with N = {n} "
                f"elements, got {bias.dtype}{list(bias.shape)}.",
                ["leave it out if it was added outside the GEMM"],
            )
        )
    return bias.reshape(n)


def write_gemm(gemm: RecordedGemm, path: str | os.PathLike) -> None:
    """Writes one GEMM as the ``.npz`` that :func:`read_gemm` and ``check`` read.

    Args:
        gemm: what to write.
        path: of the file; its folder is made.
    """
    arrays: dict[str, Any] = {
        "name": gemm.name,
        "M": gemm.M,
        "N": gemm.N,
        "use_fast_accum": gemm.use_fast_accum,
    }
    for name in ("a", "b", "out", "bias"):
        value = getattr(gemm, name)
        if value is not None:
            arrays |= {name: bits_of(value), f"{name}_dtype": value.dtype.name}
    scales = {name: getattr(gemm, name) for name in ("scale_a", "scale_b", "scale_result")}
    arrays |= {name: value for name, value in scales.items() if value is not None}
    write_atomically(pathlib.Path(path), lambda file: np.savez_compressed(file, **arrays))


def read_gemm(path: str | os.PathLike, name: str | None = None) -> RecordedGemm:
    """Reads one GEMM from an ``.npz``, by :func:`write_gemm` or by numpy anywhere.

    Args:
        path: of the file; docs/layer-by-layer.md has its layout.
        name: what to call it; None: as the file says, else the name of the file.

    Raises:
        OSError: the file cannot be opened.
        ValueError, TypeError: it does not hold such a recording; the message says what is wrong.
        UnsupportedFeatureError: scales of rows or blocks.
    """
    file = pathlib.Path(path)
    try:
        with np.load(file, allow_pickle=False) as stored:
            members = {key: stored[key] for key in stored.files}
    except (ValueError, EOFError, zipfile.BadZipFile, AttributeError, TypeError) as error:
        what = f"read_gemm: {file} is not an .npz of plain arrays ({error})."
        raise ValueError(message(what, ["numpy.savez with arrays, numbers and names"])) from None
    missing = [key for key in _REQUIRED if key not in members]
    unknown = [key for key in members if key not in _REQUIRED + _OPTIONAL]
    if missing or unknown:
        has = [f"lacks {', '.join(missing)}"] * bool(missing)
        has += [f"has unknown {', '.join(unknown)}"] * bool(unknown)
        what = f"read_gemm: {file} {' and '.join(has)}."
        raise ValueError(
            message(what, [f"needed: {', '.join(_REQUIRED)}", f"optional: {', '.join(_OPTIONAL)}"])
        )
    layout = str(members.get("b_layout", "nk"))
    if not is_one_of(layout, _LAYOUTS):
        raise unknown_option("read_gemm", "b_layout", layout, _LAYOUTS, "'nk' for b [N, K]")
    b = _stored(file, members, "b")
    own_name = str(members["name"]) if "name" in members else file.stem
    return RecordedGemm(
        own_name if name is None else name,
        _stored(file, members, "a"),
        b if layout == "nk" else np.ascontiguousarray(b.T),
        _stored(file, members, "out"),
        members["scale_a"],
        members["scale_b"],
        bool(members["use_fast_accum"]),
        members.get("scale_result"),
        _stored(file, members, "bias") if "bias" in members else None,
        *(int(members[dim]) if dim in members else None for dim in "MN"),
    )


def _stored(file: pathlib.Path, members: dict[str, np.ndarray], name: str) -> np.ndarray:
    """An array of the file in the dtype that the file names: its bits, or its bytes."""
    bits = members[name]
    given = members.get(f"{name}_dtype", bits.dtype)
    dtype_name = str(given).removeprefix("torch.").removeprefix("jnp.")
    argument = format_argument if name in ("a", "b") else output_dtype_argument
    found: Any = argument("read_gemm", f"{name}_dtype", dtype_name)
    dtype = found.dtype if argument is format_argument else found
    if bits.dtype == dtype:
        return bits
    is_bits = bits.dtype.kind in "iuV" and bits.dtype.itemsize in (1, dtype.itemsize)
    if not is_bits or bits.ndim == 0 or bits.shape[-1] * bits.dtype.itemsize % dtype.itemsize:
        raise ValueError(
            message(
                f"read_gemm: {file}: {name} is {bits.dtype}{list(bits.shape)}, which does not hold "
                f"the bits of {dtype.name}.",
                [f"store it as uint{8 * dtype.itemsize} or, its last axis longer, as uint8"],
            )
        )
    return np.ascontiguousarray(bits).view(dtype)
