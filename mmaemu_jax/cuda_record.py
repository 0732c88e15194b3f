"""Recording the GPU that is here: its split-K decisions and some of its GEMMs, as data files.

The table is one that ``platforms.split_table.read_table`` reads; the GEMMs are a pair NAME.json +
NAME.npz that tools/pack_recordings.py packs. Both grow in parts: a recording that was interrupted,
or that ran out of time, goes on where it stopped.
"""

import dataclasses
import hashlib
import io
import itertools
import json
import pathlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from mmaemu_jax.atomic_file import write_bytes_atomically
from mmaemu_jax.cuda_cublaslt import Algorithm, CublasLt, GemmCall, Refusal, scheme_of
from mmaemu_jax.epilogue import OUTPUT_DTYPES
from mmaemu_jax.platforms.split_setting import Setting
from mmaemu_jax.testing.cases import families, operands

PAIRS = (("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"))
OUTPUTS = tuple(dtype.name for dtype in OUTPUT_DTYPES)
WORKSPACES = (0, 1 << 20, 4 << 20, 32 << 20)
#: Shapes of the grid, in the order of their use: what was recorded first is the most useful.
GRID_M = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
GRID_N = (1024, 2048, 4096, 8192, 16384, 256, 512, 16)
GRID_K = (4096, 8192, 16384, 2048, 1024, 5760, 11008, 14336, 28672, 512, 256, 128, 64, 32, 16)
#: Answers in one part.
PART_ROWS = 4096
COLUMNS = ("M", "N", "K", "setting", "S", "custom", "algo", "tile", "stages", "reduction")
#: Scales of the recorded GEMMs, as fp32 bits: 1, and two whose product is rounded.
SCALES = (0x3F800000, 0x3DCCCCCD, 0x3E99999A)
DESCRIPTOR = (
    "torch 2.7.1 scaled_gemm (m=N, n=M, k=K; A=mat2 transa=T; B=mat1; C=out dtype, fp16 for fp8 "
    "outputs; D=out dtype; A/B scale pointers; FAST_ACCUM; MAX_WORKSPACE_BYTES), "
    "requestedAlgoCount 1"
)


@dataclasses.dataclass(frozen=True)
class Budget:
    """Until when new work may start."""

    end: float

    @classmethod
    def of(cls, seconds: float) -> "Budget":
        """From now on."""
        return cls(time.monotonic() + seconds)

    @property
    def spent(self) -> bool:
        """No new work."""
        return time.monotonic() >= self.end


def settings() -> list[Setting]:
    """Every way of calling that is recorded, in a fixed order."""
    return [
        Setting(*pair, out, fast, workspace)
        for workspace, fast, pair, out in itertools.product(
            WORKSPACES, (True, False), PAIRS, OUTPUTS
        )
    ]


def grid() -> Iterator[tuple[int, int, int]]:
    """The shapes (M, N, K), in a fixed order."""
    for k, n, m in itertools.product(GRID_K, GRID_N, GRID_M):
        yield m, n, k


def platform_id(library: CublasLt) -> str:
    """A name for files: the GPU and the library's version."""
    gpu = "".join(c for c in library.driver.name.lower().replace("nvidia", "") if c.isalnum())
    return f"{gpu}_lt{library.version}"


def device_facts(library: CublasLt) -> dict[str, Any]:
    """What was recorded, for the heads of all files."""
    driver = library.driver
    return {
        "gpu": driver.name,
        "capability": list(driver.capability),
        "sm_count": driver.sm_count,
        "cublaslt": library.version,
        "driver": str(driver.version),
    }


# Decisions


def record_decisions(
    library: CublasLt,
    folder: pathlib.Path,
    budget: Budget,
    shapes: Iterable[tuple[int, int, int]] | None = None,
    say: Callable[[str], None] = print,
) -> bool:
    """Asks the heuristic for the next shapes and writes part files; whether all are done.

    A part holds whole shapes, and its name their number, so that only missing ones are asked.
    """
    every = list(grid() if shapes is None else shapes)
    kinds = settings()
    per_part = max(1, PART_ROWS // len(kinds))
    _check_same_platform(library, folder)
    for first in range(0, len(every), per_part):
        path = folder / f"decisions-{first:06d}.npz"
        if path.exists():
            continue
        if budget.spent:
            return False
        part = every[first : first + per_part]
        rows = [row for shape in part for row in _ask_shape(library, shape, kinds)]
        columns = np.array(rows, np.int64).reshape(-1, len(COLUMNS)).T
        write_bytes_atomically(path, _npz_bytes(dict(zip(COLUMNS, columns, strict=True))))
        say(f"{min(first + per_part, len(every))} of {len(every)} shapes")
    return True


def _ask_shape(library: CublasLt, shape: tuple[int, int, int], kinds: list[Setting]):
    for number, setting in enumerate(kinds):
        found = library.heuristic(GemmCall(*shape, *setting))
        if isinstance(found, Algorithm):
            yield (
                *shape, number, max(found.splitK, 1), found.custom, found.algo, found.tile,
                found.stages, found.reduction,
            )  # fmt: skip


def _check_same_platform(library: CublasLt, folder: pathlib.Path) -> None:
    """The folder's first call notes the platform; later ones must be on the same."""
    facts, path = device_facts(library), folder / "device.json"
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        write_bytes_atomically(path, json.dumps(facts, indent=1).encode())
    known = json.loads(path.read_text())
    if known != facts:
        raise ValueError(
            f"record: {folder} belongs to {known}, and this is {facts}. Ways out: another folder."
        )


def write_table(library: CublasLt, folder: pathlib.Path) -> str:
    """Builds the table from all parts that are there; returns its name.

    The table infers nothing: what follows for shapes it does not hold is for people to find out.
    """
    table_id = f"heur_{platform_id(library)}"
    parts = [np.load(path) for path in sorted(folder.glob("decisions-*.npz"))]
    rows = {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS}
    facts, arrays = encode_table(table_id, device_facts(library), rows)
    files = {
        "json": (json.dumps(facts, indent=1) + "\n").encode(),
        "npz": _npz_bytes(arrays),
    }
    for suffix, data in files.items():
        write_bytes_atomically(folder / f"{table_id}.{suffix}", data)
    digests = {suffix: hashlib.sha256(data).hexdigest() for suffix, data in files.items()}
    write_bytes_atomically(
        folder / "manifest.json", json.dumps({table_id: digests}, indent=1).encode()
    )
    return table_id


def encode_table(
    table_id: str, device: dict[str, Any], rows: dict[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The facts and arrays of a table, as platforms/tables/README.md describes them."""
    shapes, position = np.unique(
        np.stack([rows[name] for name in "KNM"]), axis=1, return_inverse=True
    )
    custom = np.where(rows["S"] == 1, 0, rows["custom"])
    pairs, decision = np.unique(np.stack([rows["S"], custom]), axis=1, return_inverse=True)
    if pairs.shape[1] > 255:
        raise ValueError("record: more than 255 distinct decisions do not fit a table.")
    codes = np.zeros((len(settings()), shapes.shape[1]), np.uint8)
    codes[rows["setting"], position.ravel()] = decision.ravel() + 1
    capability = device["capability"][0], device["capability"][1]
    facts = {
        "table_id": table_id,
        "device": device,
        "descriptor": DESCRIPTOR,
        "original": {"rows": len(rows["M"])},
        "scale_result_recorded": False,
        "decisions": [_decision(capability, *pair) for pair in pairs.T.tolist()],
        "settings": list(_setting_entries(rows)),
        "envelope": {
            "kind": "k_grid", "K_min": 1, "K_max": 0, "K_grid": [], "tests": [], "bounds": []
        },
        "verified_combinations": [],
    }  # fmt: skip
    arrays = {name: shapes[i].astype(np.int32) for i, name in enumerate("KNM")}
    return facts, arrays | {"codes": codes}


def _decision(capability: tuple[int, int], splits: int, custom: int) -> dict[str, Any]:
    if splits == 1:
        return {"S": 1, "scheme": "none", "custom": None, "custom_verified": True}
    algorithm = Algorithm(0, 0, splits, 0, 0, custom, 0, 0, b"")
    scheme = scheme_of(capability, algorithm) or "unmeasured"
    return {"S": splits, "scheme": scheme, "custom": custom, "custom_verified": False}


def _setting_entries(rows: dict[str, np.ndarray]) -> Iterator[dict[str, Any]]:
    for number, setting in enumerate(settings()):
        own = rows["setting"] == number
        if not own.any():
            continue
        split = own & (rows["S"] > 1)
        sizes, depths = (rows["M"] * rows["N"])[split], rows["K"][split]
        yield setting._asdict() | {
            "column": number,
            "rows": int(own.sum()),
            "split_rows": int(split.sum()),
            "S_values": sorted(set(rows["S"][split].tolist())),
            "max_split_MN": int(sizes.max()) if len(sizes) else None,
            "min_split_K": int(depths.min()) if len(depths) else None,
        }


# GEMMs


def gemm_calls() -> Iterator[tuple[int, str, GemmCall]]:
    """Which GEMMs are recorded: (seed, operand family, call), in a fixed order."""
    shapes = ((32, 48, 64), (16, 32, 272), (48, 64, 1040), (16, 48, 4096), (32, 16, 16384))
    names = families()
    combinations = itertools.product(shapes, PAIRS, OUTPUTS, (True, False))
    for seed, (shape, pair, out, fast) in enumerate(combinations):
        call = GemmCall(*shape, *pair, out, fast, 1 << 20, out.startswith("float8"))
        yield seed, names[seed % len(names)], call


def record_gemms(
    library: CublasLt,
    folder: pathlib.Path,
    budget: Budget,
    count: int | None = None,
    say: Callable[[str], None] = print,
) -> bool:
    """Runs the next GEMMs and writes the recording with all so far; whether all are done."""
    _check_same_platform(library, folder)
    name = f"gemm_{platform_id(library)}"
    cases, arrays = _read_recording(folder, name)
    done = {case["id"] for case in cases}
    finished = True
    for seed, family, call in itertools.islice(gemm_calls(), count):
        case_id = f"{family}-{seed}"
        if case_id in done:
            continue
        if budget.spent:
            finished = False
            break
        cases.append(_record_gemm(library, case_id, seed, family, call, arrays))
    head = {
        "gpu": str(library.driver),
        "software": f"cuBLASLt {library.version}, the descriptor of torch 2.7.1",
        "profile": None,
        "source": "python -m mmaemu_jax record",
        "licence": "Apache-2.0",
    }
    write_bytes_atomically(folder / f"{name}.npz", _npz_bytes(arrays))
    write_bytes_atomically(
        folder / f"{name}.json", json.dumps(head | {"cases": cases}, indent=1).encode()
    )
    say(f"{len(cases)} GEMMs")
    return finished


def _read_recording(folder: pathlib.Path, name: str) -> tuple[list, dict[str, np.ndarray]]:
    path = folder / f"{name}.json"
    if not path.exists():
        return [], {}
    with np.load(folder / f"{name}.npz") as members:
        return json.loads(path.read_text())["cases"], {key: members[key] for key in members.files}


def _record_gemm(library, case_id, seed, family, call: GemmCall, arrays) -> dict[str, Any]:
    a, b = operands(
        family, call.format_a, call.format_b, call.M, call.N, call.K, seed, finite=False
    )
    scale_bits = [SCALES[(seed + i) % len(SCALES)] for i in range(3)]
    scale_a, scale_b, scale_result = np.array(scale_bits, np.uint32).view(np.float32)
    found = library.gemm(
        call, a, b, scale_a, scale_b, scale_result if call.has_scale_result else None
    )
    arrays |= {f"{case_id}/a": a, f"{case_id}/b": b}
    output: dict[str, Any] = {
        "fmt_a": call.format_a, "fmt_b": call.format_b, "out_dtype": call.out_dtype,
        "fast": call.use_fast_accum, "scale_a_bits": scale_bits[0], "scale_b_bits": scale_bits[1],
        "scale_result_bits": scale_bits[2] if call.has_scale_result else None, "diagonal": False,
    }  # fmt: skip
    if isinstance(found, Refusal):
        output |= {
            "split": [1, "none"],
            "rejected": found.status,
            "shape": [call.M, call.N, call.K],
        }
    else:
        bits, algorithm = found
        scheme = scheme_of(library.driver.capability, algorithm) or "unmeasured"
        arrays[f"{case_id}/out"] = bits
        output |= {"split": [max(algorithm.splitK, 1), scheme], "bits": f"{case_id}/out"}
    return {"id": case_id, "a": f"{case_id}/a", "b": f"{case_id}/b", "outputs": [output]}


# Files


def _npz_bytes(arrays: dict[str, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()
