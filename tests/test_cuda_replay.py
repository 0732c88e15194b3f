"""Replaying what ``record`` wrote: equal bits count, and every way of not being equal is told."""

import json

import numpy as np
import pytest

import mmaemu_jax as mj
from mmaemu_jax import cli, cuda_record
from mmaemu_jax.cuda_replay import replay
from mmaemu_jax.errors import MmaemuError
from mmaemu_jax.formats import E4M3
from mmaemu_jax.testing import bits_of

NAME = "gemm_some-gpu"
ONE = 0x3F800000


def recorded_case(case_id, arrays, fast=True, split=(1, "none"), out_dtype="float32", **operands):
    """A case as ``record`` writes it, whose bits profile hopper returns."""
    rng = np.random.default_rng(len(arrays))
    shape = {"a": (16, 512), "b": (32, 512)}
    codes = {name: rng.integers(0, 0x60, shape[name], np.uint8) for name in "ab"}
    to_fp8 = out_dtype.startswith("float8")
    out = mj.host.scaled_mm(
        codes["a"].view(E4M3.dtype),
        codes["b"].view(E4M3.dtype).T,
        1.0,
        1.0,
        scale_result=0.5 if to_fp8 else None,
        out_dtype=np.dtype(out_dtype),
        use_fast_accum=fast,
        splitk=1 if split[0] == 1 else split,
    )
    arrays |= {f"{case_id}/{name}": codes[name] for name in "ab"}
    arrays[f"{case_id}/out"] = bits_of(out)
    output = {"fmt_a": "e4m3", "fmt_b": "e4m3", "out_dtype": out_dtype, "fast": fast}
    output |= {"scale_a_bits": ONE, "scale_b_bits": ONE}
    output |= {"scale_result_bits": 0x3F000000 if to_fp8 else None}
    output |= {"split": list(split), "bits": f"{case_id}/out"}
    return {"id": case_id, "a": f"{case_id}/a", "b": f"{case_id}/b", "outputs": [output]}


@pytest.fixture
def recording():
    arrays: dict[str, np.ndarray] = {}
    cases = [
        recorded_case("fast", arrays),
        recorded_case("slow", arrays, fast=False, out_dtype="bfloat16"),
        recorded_case("split", arrays, split=(2, "contiguous")),
        recorded_case("fp8", arrays, out_dtype="float8_e4m3fn"),
    ]
    return cases, arrays


def write(folder, cases, arrays):
    np.savez(folder / f"{NAME}.npz", **arrays)
    (folder / f"{NAME}.json").write_text(json.dumps({"cases": cases}))
    mj.write_profile(mj.get_profile("hopper"), folder / "profile.json")


def problems(folder, profile=None):
    return {found.case_id: found.problem for found in replay(folder, profile)}


def test_equal_bits_count(recording, tmp_path, capsys):
    write(tmp_path, *recording)
    assert set(problems(tmp_path).values()) == {None}
    assert cli.main(["record", str(tmp_path), "--replay"]) == 0
    assert capsys.readouterr().out == "4 of 4 GEMMs replayed, 2048 values bit for bit\n"


def test_one_bit_is_told(recording, tmp_path, capsys):
    cases, arrays = recording
    arrays["split/out"][3, 5] ^= 1
    write(tmp_path, cases, arrays)
    assert cli.main(["record", str(tmp_path), "--replay"]) == 1
    assert capsys.readouterr().out == (
        "split: e4m3 x e4m3 -> float32, fast, 16x32x512, S=2 contiguous: 1 of 512 outputs differ\n"
        "3 of 4 GEMMs replayed, 1536 values bit for bit\n"
    )


def test_another_profile(recording, tmp_path):
    write(tmp_path, *recording)
    found = problems(tmp_path, "ada")
    assert "of 512 outputs differ" in found["fast"]
    assert "contiguous" in found["split"], "ada has no such scheme, and the reason is told"


def test_refusals(recording, tmp_path):
    cases, arrays = recording
    cases, (output,) = cases[:1], cases[0]["outputs"]
    output["rejected"] = 15
    write(tmp_path, cases, arrays)
    (problem,) = problems(tmp_path).values()
    assert problem == "the library refused it (status 15), the profile does not"
    output["out_dtype"] = "float8_e5m2"
    write(tmp_path, cases, arrays)
    assert problems(tmp_path) == {"fast": None}
    del output["rejected"]
    write(tmp_path, cases, arrays)
    (problem,) = problems(tmp_path).values()
    assert problem.startswith("the profile refuses it: ")


def test_what_is_missing(tmp_path):
    with pytest.raises(MmaemuError, match=r"replay: there is no .*profile\.json"):
        next(replay(tmp_path))
    with pytest.raises(MmaemuError, match=r"no .*gemm_.*record some GEMMs first"):
        next(replay(tmp_path, "hopper"))
    with pytest.raises(SystemExit):
        cli.main(["record", str(tmp_path), "--replay", "--profile", "nope"])


def test_what_the_recorder_writes(tmp_path):
    """Names and types of a recording made by the recorder itself, from a library that says no."""

    class Refusing:
        class driver:
            name, capability, sm_count, version = "NVIDIA Test", (9, 0), 1, 1

        version = "1.2.3"

        def gemm(self, *operands):
            return cuda_record.Refusal(15)

    cuda_record.record_gemms(Refusing(), tmp_path, cuda_record.Budget.of(60), 12, say=len)
    found = list(replay(tmp_path, "hopper"))
    assert len(found) == 12
    refused = [f for f in found if f.problem is None]
    assert {f.call.split(",")[0] for f in refused} == {"e4m3 x e4m3 -> float8_e5m2"}
