"""Re-encodes a folder of recordings into tests/vectors and the demo's data.

    python tools/pack_recordings.py FOLDER

FOLDER holds pairs NAME.json (head and cases) and NAME.npz (the arrays the cases name). Each set
becomes one file tests/vectors/NAME.npz with four members: ``index`` (the bytes of a JSON text)
and ``uint8``, ``uint16``, ``uint32``, in which the set's arrays follow each other. The JSON has
``head``, ``cases`` and ``arrays``: dtype and shape of each array, in the order of its member; a
case names an array by its number in that list. Equal inputs give equal files.
"""

import argparse
import hashlib
import io
import json
import pathlib
import zipfile

import numpy as np

from mmaemu_jax.formats import FORMATS

ROOT = pathlib.Path(__file__).resolve().parent.parent
VECTORS = ROOT / "tests" / "vectors"
DEMO = ROOT / "mmaemu_jax" / "data" / "evo2_projections.npz"
FP8_DTYPES = {fmt.name: fmt.dtype for fmt in FORMATS}
HEAD_FIELDS = ("gpu", "software", "profile", "source", "commit", "licence")
#: The toolbox ran these GPUs from c = 0: the c of their files took no part.
GPUS_WITHOUT_C = ("H100", "H200")


class ArrayPool:
    """Arrays stored once each, numbered in the order of their first use."""

    def __init__(self, source):
        self._source = source
        self._numbers: dict[tuple, int] = {}
        self._arrays: list[np.ndarray] = []

    def add(self, array: np.ndarray) -> int:
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._numbers:
            self._numbers[key] = len(self._arrays)
            self._arrays.append(array)
        return self._numbers[key]

    def take(self, name: str | None) -> int | None:
        """The number of the source's array ``name``; None stays None."""
        return None if name is None else self.add(self._source[name])

    def table(self) -> list:
        return [[a.dtype.name, list(a.shape)] for a in self._arrays]

    def members(self) -> dict[str, np.ndarray]:
        dtypes = sorted({a.dtype.name for a in self._arrays})
        return {
            dtype: np.concatenate([a.ravel() for a in self._arrays if a.dtype.name == dtype])
            for dtype in dtypes
        }


def instruction_case(case: dict, source, pool: ArrayPool) -> dict:
    """A case of rtx4060_mma or of toolbox_vectors, whose operands become FP8 codes."""
    c = case["c"]
    if "fmt" in case:
        a, b = (pool.add(fp8_codes(source[case[x]], case["fmt"])) for x in "ab")
        c = None if case["gpu"] in GPUS_WITHOUT_C else c
        names = {"id": f"{case['gpu']}/{case['fmt']}", "layout": "vector"}
        names |= {"fmt_a": case["fmt"], "fmt_b": case["fmt"]}
    else:
        a, b = (pool.take(case[x]) for x in "ab")
        names = {field: case[field] for field in ("id", "layout", "fmt_a", "fmt_b")}
    arrays = {"a": a, "b": b, "c": pool.take(c), "d": pool.take(case["d"])}
    return names | {"preset": case["preset"]} | arrays


def fp8_codes(bits: np.ndarray, fmt: str) -> np.ndarray:
    """uint8 codes of fp32 bit patterns that are exactly the values of ``fmt``."""
    dtype = FP8_DTYPES[fmt]
    codes = bits.view(np.float32).astype(dtype)
    if not np.array_equal(codes.astype(np.float32).view(np.uint32), bits):
        raise ValueError(f"pack_recordings: an operand of {fmt} is not a value of that format.")
    return codes.view(np.uint8)


def gemm_case(case: dict, _source, pool: ArrayPool) -> dict:
    formats = {(output["fmt_a"], output["fmt_b"]) for output in case["outputs"]}
    if len(formats) != 1 or any(output["diagonal"] for output in case["outputs"]):
        raise ValueError(f"pack_recordings: {case['id']}: mixed formats or a diagonal output.")
    ((fmt_a, fmt_b),) = formats
    packed = {"id": case["id"], "fmt_a": fmt_a, "fmt_b": fmt_b}
    packed |= {x: pool.take(case[x]) for x in "ab" if x in case}
    return packed | {"outputs": [gemm_output(output, pool) for output in case["outputs"]]}


def gemm_output(output: dict, pool: ArrayPool) -> dict:
    fields = ("out_dtype", "fast", "split", "scale_a_bits", "scale_b_bits", "scale_result_bits")
    packed = {field: output[field] for field in fields}
    if "bits" in output:
        return packed | {"bits": pool.take(output["bits"])}
    return packed | {"rejected_shape": output["shape"]}


def call_case(defaults: dict, case: dict, pool: ArrayPool) -> dict:
    call = defaults | case["call"]
    known = {"M", "N", "K", "mat", "mat1", "mat2", "scale_a", "scale_b", "scale_result"}
    if any(value for name, value in call.items() if name not in known):
        raise ValueError(f"pack_recordings: {case['id']}: an argument without a field here.")
    packed = {"id": case["id"], "mat1": call["mat1"]["dtype"], "mat2": call["mat2"]["dtype"]}
    packed |= {x: pool.take(case[x]) for x in "ab"}
    packed |= {x: scale_spec(call[x]) for x in ("scale_a", "scale_b")}
    return packed | {"outputs": [call_output(call, output, pool) for output in case["outputs"]]}


def call_output(call: dict, output: dict, pool: ArrayPool) -> dict:
    overrides = output["call_diff"] or {}
    if overrides.keys() - {"scale_result"}:
        raise ValueError(f"pack_recordings: {output['name']}: overrides more than scale_result.")
    packed = {field: output[field] for field in ("out_dtype", "fast")}
    packed["split"] = output["split"] or [1, "none"]
    packed["scale_result"] = scale_spec((call | overrides)["scale_result"])
    if "bits" in output:
        return packed | {"bits": pool.take(output["bits"])}
    return packed | {"error": output["error"]}


def scale_spec(scale: dict | None) -> list | None:
    return None if scale is None else [scale["dtype"], scale["shape"], scale["value"]]


def pack_set(folder: pathlib.Path, name: str) -> dict:
    """Writes one set and returns its manifest entry."""
    description = json.loads((folder / f"{name}.json").read_text())
    with np.load(folder / f"{name}.npz") as source:
        pool = ArrayPool(source)
        cases = [pack_case(name, case, description, source, pool) for case in description["cases"]]
    head = {field: description[field] for field in HEAD_FIELDS if field in description}
    index = {"head": head, "arrays": pool.table(), "cases": cases}
    members = {"index": json_bytes(index)} | pool.members()
    data = npz_bytes(members, zipfile.ZIP_LZMA)
    (VECTORS / f"{name}.npz").write_bytes(data)
    return {"sha256": hashlib.sha256(data).hexdigest(), "cases": len(cases), **head}


def pack_case(name: str, case: dict, description: dict, source, pool: ArrayPool) -> dict:
    if "call" in case:
        return call_case(description["call_defaults"], case, pool)
    if "outputs" in case:
        return gemm_case(case, source, pool)
    return instruction_case(case, source, pool)


def json_bytes(value) -> np.ndarray:
    text = json.dumps(value, separators=(",", ":"))
    return np.frombuffer(text.encode(), np.uint8)


def npz_bytes(members: dict[str, np.ndarray], compression: int) -> bytes:
    """An .npz file whose bytes depend on nothing but the members (and the compressor)."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in members.items():
            info = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = compression
            content = io.BytesIO()
            np.lib.format.write_array(content, array, allow_pickle=False)
            archive.writestr(info, content.getvalue(), compresslevel=9)
    return stream.getvalue()


def pack_demo(folder: pathlib.Path) -> None:
    """The recorded model projections alone, deflated, which every Python can read."""
    cases = json.loads((folder / "rtx4060_gemm.json").read_text())["cases"]
    members: dict[str, np.ndarray] = {}
    index = []
    with np.load(folder / "rtx4060_gemm.npz") as source:
        for case in (c for c in cases if c["id"].startswith("evo2.")):
            name = case["id"].rpartition("/")[2]
            members |= {f"{name}_a": source[case["a"]], f"{name}_b": source[case["b"]]}
            index.append({"name": name, "outputs": demo_outputs(name, case, source, members)})
    DEMO.write_bytes(npz_bytes({"index": json_bytes(index)} | members, zipfile.ZIP_DEFLATED))


def demo_outputs(name: str, case: dict, source, members: dict[str, np.ndarray]) -> list[dict]:
    """The distinct outputs of one projection; their arrays are added to ``members``."""
    outputs = []
    for output in case["outputs"]:
        if output["split"] != [1, "none"] or output["scale_result_bits"] is not None:
            raise ValueError(f"pack_recordings: {case['id']}: a split or a scale_result.")
        key = f"{name}_{output['out_dtype']}"
        fields = {"out_dtype": output["out_dtype"], "use_fast_accum": output["fast"]}
        fields |= {x: output[f"{x}_bits"] for x in ("scale_a", "scale_b")} | {"bits": key}
        if fields not in outputs:
            outputs.append(fields)
            members[key] = source[output["bits"]]
    return outputs


def main() -> None:
    parser = argparse.ArgumentParser(description="Packs recordings for the tests and the demo.")
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    names = sorted(path.stem for path in folder.glob("*.json"))
    manifest = {name: pack_set(folder, name) for name in names}
    (VECTORS / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    pack_demo(folder)


if __name__ == "__main__":
    main()
