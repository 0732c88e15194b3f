"""Replaying the GEMMs that ``record`` wrote down, on the processor: does a profile return them?"""

import dataclasses
import json
import pathlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from mmaemu_jax import host
from mmaemu_jax.epilogue import OUTPUT_DTYPES
from mmaemu_jax.errors import MmaemuError, MmaemuWarning, ReferenceRejectsError, message
from mmaemu_jax.formats import FORMATS
from mmaemu_jax.platforms import Profile, profile_argument
from mmaemu_jax.testing import BitReport, compare_bits

_DTYPES = {f.name: f.dtype for f in FORMATS} | {dtype.name: dtype for dtype in OUTPUT_DTYPES}


@dataclasses.dataclass(frozen=True)
class ReplayedGemm:
    """One recorded GEMM, computed again.

    Attributes:
        case_id: its name in the recording.
        call: its formats, output dtype, accumulation, shape and split.
        report: how the bits compare; None where the library refused the call.
        problem: why it does not count as replayed, or None.
    """

    case_id: str
    call: str
    report: BitReport | None
    problem: str | None


def replay(
    folder: pathlib.Path, profile: str | Profile | None = None, backend: str = "auto"
) -> Iterator[ReplayedGemm]:
    """Computes the GEMMs of a folder that ``python -m mmaemu_jax record`` wrote, one by one.

    Args:
        folder: where the recording is.
        profile: whose arithmetic computes them; None: the folder's own profile.json.
        backend: as for :func:`mmaemu_jax.host.scaled_mm`.

    Raises:
        MmaemuError: no recording, or no profile.json and no ``profile``.
    """
    own = folder / "profile.json"
    if profile is None and not own.exists():
        raise _missing(own, "pass profile")
    whose = profile_argument("replay", str(own) if profile is None else profile)
    recordings = sorted(folder.glob("gemm_*.json"))
    if not recordings:
        raise _missing(folder / "gemm_*.json", "record some GEMMs first")
    for path in recordings:
        with np.load(path.with_suffix(".npz")) as arrays:
            for case in json.loads(path.read_text())["cases"]:
                yield _replay(case, arrays, whose, backend)


def _missing(path: pathlib.Path, way_out: str) -> MmaemuError:
    return MmaemuError(message(f"replay: there is no {path}.", [way_out]))


def _replay(case: dict[str, Any], arrays, profile: Profile, backend: str) -> ReplayedGemm:
    (output,) = case["outputs"]
    a = arrays[case["a"]].view(_DTYPES[output["fmt_a"]])
    b = arrays[case["b"]].view(_DTYPES[output["fmt_b"]])
    splits, scheme = output["split"]
    accumulation = "fast" if output["fast"] else "slow"
    call = (
        f"{output['fmt_a']} x {output['fmt_b']} -> {output['out_dtype']}, {accumulation}, "
        f"{a.shape[0]}x{b.shape[0]}x{a.shape[1]}, S={splits} {scheme}"
    )
    try:
        with warnings.catch_warnings():
            # That the profile is experimental is why this is done.
            warnings.simplefilter("ignore", MmaemuWarning)
            found = host.scaled_mm(
                a,
                b.T,
                _scale(output["scale_a_bits"]),
                _scale(output["scale_b_bits"]),
                scale_result=_scale(output["scale_result_bits"]),
                out_dtype=_DTYPES[output["out_dtype"]],
                use_fast_accum=output["fast"],
                profile=profile,
                splitk=1 if splits == 1 else (splits, scheme),
                backend=backend,
            )
    except ReferenceRejectsError as e:
        problem = None if "rejected" in output else f"the profile refuses it: {e}"
        return ReplayedGemm(case["id"], call, None, problem)
    except (MmaemuError, ValueError) as e:
        return ReplayedGemm(case["id"], call, None, str(e))
    if "rejected" in output:
        problem = f"the library refused it (status {output['rejected']}), the profile does not"
        return ReplayedGemm(case["id"], call, None, problem)
    report = compare_bits(found, arrays[output["bits"]].view(found.dtype))
    problem = None if report.equal else f"{report.differing} of {report.size} outputs differ"
    return ReplayedGemm(case["id"], call, report, problem)


def _scale(bits: int | None) -> np.ndarray | None:
    return None if bits is None else np.array(bits, np.uint32).view(np.float32)
