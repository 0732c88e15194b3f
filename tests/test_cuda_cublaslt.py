"""Asking cuBLASLt and recording it, against a library that is not one (fake_cublaslt.c)."""

import ctypes
import dataclasses
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

import mmaemu_jax as mj
from mmaemu_jax import cli, cuda_cublaslt, cuda_record
from mmaemu_jax.cuda_cublaslt import Algorithm, CublasLt, GemmCall, Refusal
from mmaemu_jax.cuda_driver import CudaDriver
from mmaemu_jax.errors import BackendUnavailableError
from mmaemu_jax.platforms import live_query
from mmaemu_jax.platforms.split_setting import Setting
from mmaemu_jax.platforms.split_table import read_table

SOURCE = pathlib.Path(__file__).parent / "fake_cublaslt.c"
TOOLS = pathlib.Path(__file__).parent.parent / "tools"
CALL = GemmCall(32, 48, 64, "e4m3", "e5m2", "float32", True, 1 << 20)


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler is needed, as it was for the package itself"
    target = tmp_path_factory.mktemp("fake") / "libcublasLt.so.12.8.3.14"
    flags = ["-shared", "-fPIC", "-Wall", "-Wno-parentheses", "-Werror"]
    subprocess.run([compiler, *flags, str(SOURCE), "-o", str(target)], check=True)
    return str(target)


@pytest.fixture
def library(path):
    lt = CublasLt(path, CudaDriver(path))
    yield lt
    lt.close()
    assert ctypes.CDLL(path).fake_live_allocations() == 0, "everything made was given back"


def codes(seed, shape):
    return np.random.default_rng(seed).integers(0, 120, shape, np.uint8)


def queries(path) -> int:
    return ctypes.CDLL(path).fake_queries()


def test_names(library):
    assert str(library.driver) == mj.get_profile("hopper").gpu
    assert f"cuBLASLt {library.version}" == mj.get_profile("hopper").library
    assert cuda_record.platform_id(library) == "h100pcie_lt12.8.3.14"


def test_heuristic(library):
    found = library.heuristic(CALL)
    assert isinstance(found, Algorithm)
    assert dataclasses.astuple(found)[:8] == (66, 20, 1, 2, 0, 3, 5, 0)
    deep = dataclasses.replace(CALL, K=8192)
    assert library.heuristic(deep).splitK == 4
    assert library.heuristic(dataclasses.replace(deep, use_fast_accum=False)).splitK == 2
    assert library.heuristic(dataclasses.replace(deep, workspace_bytes=0)).splitK == 1
    refused = dataclasses.replace(CALL, format_b="e4m3", out_dtype="float8_e5m2")
    assert library.heuristic(refused) == Refusal(15)


@pytest.mark.parametrize("fast", [True, False])
def test_gemm_gives_every_operand_its_role(library, fast):
    call = dataclasses.replace(CALL, use_fast_accum=fast)
    a, b = codes(1, (32, 64)), codes(2, (48, 64))
    bits, algorithm = library.gemm(call, a, b, np.float32(2), np.float32(0.5))
    expected = 2.0 * a[:, :1] + b[:, 0] + (1000.0 if fast else 0.0)
    assert algorithm.splitK == 1
    np.testing.assert_array_equal(bits.view(np.float32), expected.astype(np.float32))
    c, bias = np.arange(32 * 48, dtype=np.float32).reshape(32, 48), np.arange(48, dtype=np.uint16)
    options = {"bias": bias, "c": c.view(np.uint32)}
    bits, _ = library.gemm(call, a, b, np.float32(2), np.float32(0.5), **options)
    np.testing.assert_array_equal(bits.view(np.float32), (expected + bias + c).astype(np.float32))


@pytest.mark.parametrize(
    ("out", "size", "value"),
    [("bfloat16", 2, 14), ("float16", 2, 2), ("float8_e4m3fn", 1, 31), ("float8_e5m2", 1, 32)],
)
def test_outputs_have_their_type(library, out, size, value):
    fp8 = out.startswith("float8")
    call = dataclasses.replace(CALL, out_dtype=out, has_scale_result=fp8)
    scale = np.float32(3) if fp8 else None
    bits, _ = library.gemm(
        call, codes(1, (32, 64)), codes(2, (48, 64)), np.float32(1), np.float32(1), scale
    )
    assert bits.itemsize == size
    assert (bits == value).all()


def test_schemes():
    split = Algorithm(0, 0, 3, 0, 0, 1, 0, 0, b"")
    other = dataclasses.replace(split, custom=0)
    assert cuda_cublaslt.scheme_of((9, 0), split) == "contiguous"
    assert cuda_cublaslt.scheme_of((8, 9), split) == "pairwise"
    assert cuda_cublaslt.scheme_of((8, 9), other) == "serial"
    assert cuda_cublaslt.scheme_of((10, 0), split) is None
    assert cuda_cublaslt.scheme_of((10, 0), dataclasses.replace(split, splitK=1)) == "none"


def test_what_is_missing_is_named(path, tmp_path, monkeypatch):
    with pytest.raises(BackendUnavailableError, match=r"driver cannot be loaded.*Ways out"):
        CudaDriver(str(tmp_path / "libcuda.so.1"))
    with pytest.raises(BackendUnavailableError, match="cuDeviceGet failed with CUresult 101"):
        CudaDriver(path, device=1)
    monkeypatch.setattr(cuda_cublaslt, "find_library", lambda: None)
    with pytest.raises(BackendUnavailableError, match=r"libcublasLt was not found.*nvidia-cublas"):
        CublasLt(driver=CudaDriver(path))


# The live query


def test_provider(library, monkeypatch):
    provider = live_query.CublasLtProvider(library)
    monkeypatch.setattr(live_query, "find_provider", lambda: provider)
    options = {"a_dtype": "e4m3", "b_dtype": "e4m3", "out_dtype": np.float32, "splitk": "live"}
    options |= {"use_fast_accum": True, "profile": "hopper"}
    decision = mj.resolve_splitk(48, 64, 8208, **options)
    assert (decision.S, decision.scheme, decision.source) == (4, "contiguous", "live-query")
    assert "NVIDIA H100 PCIe (sm_90, 114 SMs)" in decision.note
    assert "refuses the call (cublasStatus_t 15)" in str(
        provider.split(16, 16, 16, Setting("e4m3", "e4m3", "float8_e5m2", True, 0))
    )


def test_no_provider_without_a_driver(monkeypatch):
    def unavailable():
        raise BackendUnavailableError("no driver here")

    monkeypatch.setattr(live_query, "CublasLt", unavailable)
    reason = live_query.find_provider.__wrapped__()
    assert reason == "no cuBLASLt can be asked here: no driver here"


# Recording

SHAPES = [(16, 32, 8192), (16, 16, 64), (32, 16, 64), (64, 64, 16384), (16, 16, 128)]


def record_table(library, folder, seconds=60.0):
    return cuda_record.record_decisions(
        library, folder, cuda_record.Budget.of(seconds), SHAPES, say=lambda line: None
    )


def test_a_table_that_the_package_reads(library, tmp_path, monkeypatch):
    monkeypatch.setattr(cuda_record, "PART_ROWS", 240)
    assert record_table(library, tmp_path)
    table = read_table(tmp_path, cuda_record.write_table(library, tmp_path))
    assert table.gpu == "NVIDIA H100 PCIe (114 SMs)"
    assert table.library == mj.get_profile("hopper").library
    for shape in SHAPES:
        for setting in cuda_record.settings():
            row, found = (
                table.lookup(*shape, *setting),
                library.heuristic(GemmCall(*shape, *setting)),
            )
            if isinstance(found, Refusal):
                assert row is None
            elif found.splitK == 1:
                assert (row.S, row.scheme, row.custom) == (1, "none", None)
            else:
                assert (row.S, row.scheme, row.custom) == (found.splitK, "contiguous", 3)
                assert not row.custom_verified
    assert table.lookup(16, 48, 64, *cuda_record.settings()[0]) is None
    assert isinstance(table.bound(cuda_record.settings()[0], 4096), str), "nothing is inferred"
    fast = table.settings[Setting("e4m3", "e4m3", "bfloat16", True, 1 << 20)]
    assert (fast.rows, fast.split_rows, fast.S_values) == (5, 2, (4,))
    assert (fast.max_split_MN, fast.min_split_K) == (64 * 64, 8192)


def test_recording_goes_on_where_it_stopped(library, path, tmp_path, monkeypatch):
    monkeypatch.setattr(cuda_record, "PART_ROWS", 120)
    assert not record_table(library, tmp_path, seconds=-1)
    assert not list(tmp_path.glob("decisions-*"))
    assert record_table(library, tmp_path)
    before = queries(path)
    assert record_table(library, tmp_path)
    assert queries(path) == before, "nothing is asked twice"
    (tmp_path / "decisions-000002.npz").unlink()
    assert record_table(library, tmp_path)
    assert queries(path) == before + len(cuda_record.settings())


def test_a_folder_belongs_to_one_platform(library, tmp_path):
    facts = cuda_record.device_facts(library) | {"gpu": "NVIDIA L40S"}
    (tmp_path / "device.json").write_text(json.dumps(facts))
    with pytest.raises(ValueError, match=r"record: .* belongs to .*L40S.*Ways out: another folder"):
        record_table(library, tmp_path)


def pack_recordings():
    """The tool, whose folder is on no path."""
    spec = importlib.util.spec_from_file_location("pack_recordings", TOOLS / "pack_recordings.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["pack_recordings"] = module
    spec.loader.exec_module(module)
    return module


def test_gemms_that_the_packing_tool_takes(library, tmp_path):
    def record(count, seconds):
        budget = cuda_record.Budget.of(seconds)
        return cuda_record.record_gemms(library, tmp_path, budget, count, say=lambda line: None)

    assert not record(30, -1)
    assert record(4, 60)
    assert record(30, 60)
    name = f"gemm_{cuda_record.platform_id(library)}"
    recording = json.loads((tmp_path / f"{name}.json").read_text())
    assert len(recording["cases"]) == len({case["id"] for case in recording["cases"]}) == 30
    rejected = [c for c in recording["cases"] if "rejected" in c["outputs"][0]]
    assert [c["outputs"][0]["out_dtype"] for c in rejected] == ["float8_e5m2"] * 2
    tool = pack_recordings()
    with np.load(tmp_path / f"{name}.npz") as source:
        pool = tool.ArrayPool(source)
        packed = [tool.gemm_case(case, source, pool) for case in recording["cases"]]
    assert packed[0]["outputs"][0]["split"] == [1, "none"]
    assert all("bits" in p["outputs"][0] or "rejected_shape" in p["outputs"][0] for p in packed)


def test_command(path, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cuda_record, "GRID_K", (64,))
    monkeypatch.setattr(cuda_record, "GRID_N", (16, 32))
    monkeypatch.setattr(cuda_record, "GRID_M", (16,))
    arguments = ["record", str(tmp_path / "out"), "--library", path, "--driver", path]
    assert cli.main([*arguments, "--minutes", "0"]) == 1
    assert "run the command again" in capsys.readouterr().out
    assert cli.main(arguments) == 0
    out = capsys.readouterr().out
    assert "NVIDIA H100 PCIe (sm_90, 114 SMs), cuBLASLt 12.8.3.14" in out
    assert "table heur_h100pcie_lt12.8.3.14" in out
    profile = mj.read_profile(tmp_path / "out" / "profile.json")
    assert (profile.gpu, profile.maturity) == (mj.get_profile("hopper").gpu, "experimental")
    setting = {"a_dtype": "e4m3", "b_dtype": "e5m2", "out_dtype": "f32", "use_fast_accum": False}
    assert mj.resolve_splitk(16, 32, 64, **setting, profile=profile).source == "table"
    assert cli.main(["record", str(tmp_path / "out"), "--replay"]) == 1, "its bits are made up"
    assert "outputs differ" in capsys.readouterr().out
    assert cli.main(["record", str(tmp_path), "--driver", str(tmp_path / "none")]) == 2
    assert "driver cannot be loaded" in capsys.readouterr().err
