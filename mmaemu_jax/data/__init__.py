"""Recordings shipped with the package (README.md beside this file says where they come from)."""

import dataclasses
import importlib.resources
import json

import ml_dtypes
import numpy as np

from mmaemu_jax.formats import E4M3

_OUTPUT_DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


@dataclasses.dataclass(frozen=True, eq=False)
class RecordedOutput:
    """What the GPU returned for one choice of options.

    Attributes:
        out_dtype: float32 or bfloat16.
        use_fast_accum: as given to the call.
        scale_a, scale_b: float32 scalars.
        bits: [M, N] array of ``out_dtype``.
    """

    out_dtype: np.dtype
    use_fast_accum: bool
    scale_a: np.float32
    scale_b: np.float32
    bits: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class RecordedProjection:
    """One FP8 projection of a language model as an RTX 4060 computed it, unsplit.

    Attributes:
        name: which call of the model.
        a: [M, K] float8_e4m3fn activations.
        b: [N, K] float8_e4m3fn weights; the call was ``torch._scaled_mm(a, b.t(), ...)``.
        outputs: the recorded results.
    """

    name: str
    a: np.ndarray
    b: np.ndarray
    outputs: tuple[RecordedOutput, ...]


def load_evo2_projections() -> list[RecordedProjection]:
    """Three FP8 projections of the Evo 2 1B DNA language model, recorded on an RTX 4060.

    Each has M = 32 rows of activations, N = 128 rows of weights and K = 1920, and was recorded
    with float32 and bfloat16 output under fast accumulation, profile "ada", S = 1.
    """
    path = importlib.resources.files(__name__) / "evo2_projections.npz"
    with path.open("rb") as stream, np.load(stream) as members:
        index = json.loads(members["index"].tobytes())
        return [_projection(entry, members) for entry in index]


def _projection(entry: dict, members) -> RecordedProjection:
    a, b = (members[f"{entry['name']}_{x}"].view(E4M3.dtype) for x in "ab")
    outputs = tuple(_output(output, members) for output in entry["outputs"])
    return RecordedProjection(entry["name"], a, b, outputs)


def _output(entry: dict, members) -> RecordedOutput:
    out_dtype = _OUTPUT_DTYPES[entry["out_dtype"]]
    scale_a, scale_b = (np.uint32(entry[x]).view(np.float32) for x in ("scale_a", "scale_b"))
    bits = members[entry["bits"]].view(out_dtype)
    return RecordedOutput(out_dtype, entry["use_fast_accum"], scale_a, scale_b, bits)
