"""The recordings of tests/vectors as typed cases (README.md there says what was recorded)."""

import dataclasses
import functools
import hashlib
import io
import json
import pathlib
import typing

import ml_dtypes
import numpy as np

from mmaemu_jax.formats import format_named

VECTORS = pathlib.Path(__file__).parent / "vectors"

#: Number of cases of each set.
CASES = {
    "rtx4060_mma": 57,
    "toolbox_vectors": 10,
    "rtx4060_gemm": 473,
    "rtx4060_epilogue": 29,
    "h100_oracle": 189,
    "rtx4060_call": 614,
}
INSTRUCTION_SETS = ("rtx4060_mma", "toolbox_vectors")
GEMM_SETS = ("rtx4060_gemm", "rtx4060_epilogue", "h100_oracle")


@dataclasses.dataclass(frozen=True, eq=False)
class InstructionCase:
    """One chain d = c + sum a b: a and b [..., K] float8 broadcast to d [...] float32."""

    id: str
    preset: str
    a: np.ndarray
    b: np.ndarray
    c: np.ndarray | None
    d: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class GemmOutput:
    """One call of a GEMM; ``bits`` [M, N] of ``out_dtype``, or None where it was rejected."""

    out_dtype: np.dtype
    fast: bool
    split: tuple[int, str]
    scale_a: np.float32
    scale_b: np.float32
    scale_result: np.float32 | None
    bits: np.ndarray | None
    #: [M, N, K] of a rejected call.
    rejected_shape: tuple[int, int, int] | None


@dataclasses.dataclass(frozen=True, eq=False)
class GemmCase:
    """Operands a [M, K], b [N, K] and what ``torch._scaled_mm(a, b.t(), ...)`` gave for them.

    A case whose calls were all rejected has no operands, only their dtypes.
    """

    id: str
    profile: str
    a_dtype: np.dtype
    b_dtype: np.dtype
    a: np.ndarray | None
    b: np.ndarray | None
    outputs: tuple[GemmOutput, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class CallOutput:
    """One call of the argument grid: ``bits`` [M, N] of ``out_dtype``, or the error's name."""

    out_dtype: np.dtype
    fast: bool
    split: tuple[int, str]
    scale_result: np.ndarray | None
    bits: np.ndarray | None
    error: str | None


@dataclasses.dataclass(frozen=True, eq=False)
class CallCase:
    """Arguments as given: a [M, K], b [N, K] and scales of any dtype and shape."""

    id: str
    a: np.ndarray
    b: np.ndarray
    scale_a: np.ndarray
    scale_b: np.ndarray
    outputs: tuple[CallOutput, ...]


class _Set(typing.NamedTuple):
    head: dict
    cases: list
    arrays: list


def read_set(name: str) -> _Set:
    """The JSON and the arrays of one set, after checking the file against the manifest."""
    data = (VECTORS / f"{name}.npz").read_bytes()
    expected = json.loads((VECTORS / "manifest.json").read_text())[name]["sha256"]
    if hashlib.sha256(data).hexdigest() != expected:
        raise ValueError(f"{name}.npz is not the file that manifest.json describes.")
    with np.load(io.BytesIO(data)) as members:
        index = json.loads(members["index"].tobytes())
        flat = {m: members[m] for m in members.files if m != "index"}
    return _Set(index["head"], index["cases"], _cut(flat, index["arrays"]))


_load = functools.cache(read_set)


def _cut(flat: dict[str, np.ndarray], table: list) -> list:
    """The arrays that follow each other in ``flat``, by dtype and shape as in ``table``."""
    position = dict.fromkeys(flat, 0)
    arrays = []
    for dtype, shape in table:
        start, size = position[dtype], int(np.prod(shape, dtype=np.int64))
        position[dtype] += size
        arrays.append(flat[dtype][start : start + size].reshape(shape))
    return arrays


def _dtype(name: str) -> np.dtype:
    fmt = format_named(name)
    return fmt.dtype if fmt else np.dtype(getattr(ml_dtypes, name, name))


def _float32(bits: int | None) -> np.float32 | None:
    return None if bits is None else np.uint32(bits).view(np.float32)


def instruction_cases(name: str) -> list[InstructionCase]:
    """The cases of one of INSTRUCTION_SETS."""
    loaded = _load(name)
    return [_instruction_case(case, loaded.arrays) for case in loaded.cases]


def _instruction_case(case: dict, arrays: list) -> InstructionCase:
    a, b = (arrays[case[x]].view(_dtype(case[f"fmt_{x}"])) for x in "ab")
    if case["layout"] == "tile":  # every row of a [t, m, K] with every row of b [t, n, K]
        a, b = a[:, :, None], b[:, None, :]
    c = None if case["c"] is None else arrays[case["c"]].view(np.float32)
    d = arrays[case["d"]].view(np.float32)
    return InstructionCase(case["id"], case["preset"], a, b, c, d)


def gemm_cases(name: str) -> list[GemmCase]:
    """The cases of one of GEMM_SETS."""
    loaded = _load(name)
    profile = loaded.head["profile"]
    return [_gemm_case(case, profile, loaded.arrays) for case in loaded.cases]


def _gemm_case(case: dict, profile: str, arrays: list) -> GemmCase:
    a_dtype, b_dtype = _dtype(case["fmt_a"]), _dtype(case["fmt_b"])
    outputs = tuple(_gemm_output(output, arrays) for output in case["outputs"])
    a = arrays[case["a"]].view(a_dtype) if "a" in case else None
    b = arrays[case["b"]].view(b_dtype) if "b" in case else None
    return GemmCase(case["id"], profile, a_dtype, b_dtype, a, b, outputs)


def _gemm_output(output: dict, arrays: list) -> GemmOutput:
    out_dtype = _dtype(output["out_dtype"])
    shape = output.get("rejected_shape")
    scale_a, scale_b = _float32(output["scale_a_bits"]), _float32(output["scale_b_bits"])
    assert scale_a is not None
    assert scale_b is not None
    return GemmOutput(
        out_dtype=out_dtype,
        fast=output["fast"],
        split=tuple(output["split"]),
        scale_a=scale_a,
        scale_b=scale_b,
        scale_result=_float32(output["scale_result_bits"]),
        bits=None if shape else arrays[output["bits"]].view(out_dtype),
        rejected_shape=tuple(shape) if shape else None,
    )


def call_cases() -> list[CallCase]:
    """The cases of rtx4060_call."""
    loaded = _load("rtx4060_call")
    return [_call_case(case, loaded.arrays) for case in loaded.cases]


def _call_case(case: dict, arrays: list) -> CallCase:
    return CallCase(
        id=case["id"],
        a=arrays[case["a"]].view(_dtype(case["mat1"])),
        b=arrays[case["b"]].view(_dtype(case["mat2"])),
        scale_a=_scale(*case["scale_a"]),
        scale_b=_scale(*case["scale_b"]),
        outputs=tuple(_call_output(output, arrays) for output in case["outputs"]),
    )


def _call_output(output: dict, arrays: list) -> CallOutput:
    out_dtype = _dtype(output["out_dtype"])
    return CallOutput(
        out_dtype=out_dtype,
        fast=output["fast"],
        split=tuple(output["split"]),
        scale_result=output["scale_result"] and _scale(*output["scale_result"]),
        bits=arrays[output["bits"]].view(out_dtype) if "bits" in output else None,
        error=output.get("error"),
    )


def _scale(dtype: str, shape: list[int], value: float | str) -> np.ndarray:
    if value == "rowwise":  # some distinct values: such calls were recorded only as rejections
        return np.linspace(0.5, 1.5, int(np.prod(shape))).reshape(shape).astype(_dtype(dtype))
    return np.full(shape, float(value), _dtype(dtype))
