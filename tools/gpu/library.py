"""What do this GPU's cuBLASLt and torch return, and which arithmetic explains it?"""

import collections
import dataclasses
import importlib.util
import itertools
import pathlib
import subprocess
import tempfile
import time

import jax
import ml_dtypes
import numpy as np
from gpu_check import ROOT, Outcome, Run

import mmaemu_jax as mj
from mmaemu_jax import cuda_record
from mmaemu_jax.cuda_cublaslt import Algorithm, CublasLt, GemmCall, Refusal, scheme_of
from mmaemu_jax.cuda_driver import CudaDriver
from mmaemu_jax.formats import format_named
from mmaemu_jax.testing.cases import families, operands

SHAPES = ((64, 128, 256), (128, 64, 1040), (32, 256, 4096), (16, 48, 16384))
DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
COUNT = 64


def split_argument(library: CublasLt, algorithm: Algorithm):
    """The splitk of scaled_mm for what the library chose."""
    scheme = scheme_of(library.driver.capability, algorithm)
    return (algorithm.splitK, scheme) if algorithm.splitK > 1 and scheme else 1


def open_library(run: Run) -> CublasLt:
    """This machine's cuBLASLt; in a dry run the tests' stand-in."""
    if not run.dry:
        return CublasLt()
    path = pathlib.Path(tempfile.mkdtemp()) / "libcublasLt.so.12.8.3.14"
    source = ROOT / "tests" / "fake_cublaslt.c"
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(path)], check=True)
    return CublasLt(str(path), CudaDriver(str(path)))


def profile_of(library: CublasLt) -> str:
    """The profile with the GPU's arithmetic."""
    return "ada" if library.driver.capability == (8, 9) else "hopper"


def emulated(a, b, scales, call: GemmCall, profile: str, split, out_dtype) -> np.ndarray:
    """scaled_mm on the CPU: the bits that the profile's arithmetic gives."""
    x, y = a.view(format_named(call.format_a).dtype), b.view(format_named(call.format_b).dtype)
    with jax.default_device(jax.devices("cpu")[0]):
        return np.asarray(
            mj.scaled_mm(
                x, y.T, *scales, out_dtype=out_dtype, use_fast_accum=call.use_fast_accum,
                profile=profile, splitk=split,
            )
        )  # fmt: skip


def calls(with_addend: bool):
    """COUNT calls: shapes x formats x outputs x accumulation, in turn."""
    outputs = ("bfloat16", "float32") if with_addend else tuple(DTYPES)
    every = itertools.product(SHAPES, cuda_record.PAIRS, outputs, (True, False))
    for seed, (shape, pair, out, fast) in enumerate(
        itertools.islice(itertools.cycle(every), COUNT)
    ):
        yield seed, GemmCall(*shape, *pair, out, fast, 32 << 20)


def same_bits(x: np.ndarray, y: np.ndarray) -> bool:
    """Equal bit patterns."""
    return x.tobytes() == y.tobytes()


def hypotheses(y32: np.ndarray, addend: np.ndarray, dtype) -> dict[str, np.ndarray]:
    """How an addend can enter: in fp32 before the output's rounding, or after it, rounded again."""
    x = addend.astype(np.float32)
    once = (y32 + x).astype(dtype)
    twice = (y32.astype(dtype).astype(np.float32) + x).astype(dtype)
    return {"fused": once, "two roundings": twice}


def compare(run: Run, budget: float) -> Outcome:
    """Plain GEMMs, a fused bias and beta = 1 against the emulated accumulator."""
    library, end = open_library(run), time.monotonic() + budget
    tally: collections.Counter = collections.Counter()
    details = []
    for kind in ("plain", "bias", "beta"):
        for seed, call in calls(kind != "plain"):
            if time.monotonic() > end or (run.dry and seed >= 3):
                break
            for verdict in one_call(library, kind, seed, call):
                tally[f"{kind}: {verdict}"] += 1
                if verdict == "unexplained":
                    details.append(f"{kind} {call}")
    text = f"{library.driver}, cuBLASLt {library.version}; {dict(sorted(tally.items()))}"
    library.close()
    explained = not details and bool(tally)
    return Outcome("", run.dry or explained, text, details=details)


def one_call(library: CublasLt, kind: str, seed: int, call: GemmCall):
    """Which hypotheses explain one GEMM of the library."""
    names = families()
    a, b = operands(names[seed % len(names)], call.format_a, call.format_b, call.M, call.N, call.K,
                    seed)  # fmt: skip
    scales = (np.float32(0.1), np.float32(1.7))
    dtype = np.dtype(DTYPES[call.out_dtype])
    random = np.random.default_rng(seed)
    bias = random.normal(size=call.N).astype(ml_dtypes.bfloat16)
    c = random.normal(size=(call.M, call.N)).astype(dtype)
    extra = {
        "plain": {},
        "bias": {"bias": bias.view(np.uint16)},
        "beta": {"c": c.view(f"u{dtype.itemsize}")},
    }[kind]
    found = library.gemm(call, a, b, *scales, **extra)
    if isinstance(found, Refusal):
        return [f"refused {found.status}"]
    bits, algorithm = found
    split = split_argument(library, algorithm)
    profile = profile_of(library)
    if kind == "plain":
        expected = {"equal": emulated(a, b, scales, call, profile, split, dtype)}
    else:
        y32 = emulated(a, b, scales, call, profile, split, np.float32)
        addend = np.broadcast_to(bias, y32.shape) if kind == "bias" else c
        expected = hypotheses(y32, addend, dtype)
    fits = [name for name, y in expected.items() if same_bits(bits, y)]
    return fits or ["unexplained"]


def compare_torch(run: Run, budget: float) -> Outcome:
    """torch._scaled_mm against the CPU, with the split that this cuBLASLt chooses."""
    if importlib.util.find_spec("torch") is None:
        return Outcome("", None, "torch is not installed")
    import torch

    if not torch.cuda.is_available():
        return Outcome("", None, "torch sees no GPU")
    library, end = open_library(run), time.monotonic() + budget
    equal, wrong = 0, []
    for seed, call in calls(False):
        if time.monotonic() > end:
            break
        # torch's workspace is 1 MiB, on Hopper from version 2.8 on 32 MiB.
        call = dataclasses.replace(call, workspace_bytes=1 << 20)
        ok = one_torch_call(torch, library, seed, call)
        equal += ok
        if not ok:
            wrong.append(str(call))
    library.close()
    text = f"torch {torch.__version__}: {equal} equal, {len(wrong)} differ"
    return Outcome("", not wrong, text, details=wrong)


def one_torch_call(torch, library: CublasLt, seed: int, call: GemmCall) -> bool:
    """Whether torch's bits are the emulated ones."""
    a, b = operands("uniform", call.format_a, call.format_b, call.M, call.N, call.K, seed)
    kinds = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
    x, y = (
        torch.from_numpy(codes.copy()).cuda().view(kinds[fmt])
        for codes, fmt in ((a, call.format_a), (b, call.format_b))
    )
    scales = (np.float32(0.1), np.float32(1.7))
    on_gpu = [torch.tensor(float(s), device="cuda", dtype=torch.float32) for s in scales]
    out = torch._scaled_mm(
        x, y.t(), *on_gpu, out_dtype=getattr(torch, call.out_dtype),
        use_fast_accum=call.use_fast_accum,
    )  # fmt: skip
    found = library.heuristic(call)
    split = 1 if isinstance(found, Refusal) else split_argument(library, found)
    desired = emulated(a, b, scales, call, profile_of(library), split, DTYPES[call.out_dtype])
    return same_bits(out.view(torch.uint8).cpu().numpy(), desired.view(np.uint8))


def record(run: Run, budget: float) -> Outcome:
    """A recording of the device, for data files."""
    library, folder = open_library(run), run.out / "recording"
    allowed = cuda_record.Budget.of(0.7 * budget)
    count = 4 if run.dry else None
    shapes = [(16, 16, 64), (16, 32, 8192)] if run.dry else None
    silent = lambda line: None  # noqa: E731
    gemms = cuda_record.record_gemms(library, folder, allowed, count, say=silent)
    table = cuda_record.record_decisions(library, folder, allowed, shapes, say=silent)
    parts = len(list(folder.glob("decisions-*.npz")))
    name = cuda_record.write_table(library, folder) if parts else "no table"
    library.close()
    left = "all done" if gemms and table else "goes on with python -m mmaemu_jax record"
    return Outcome("", True, f"{folder}: {name}, {parts} parts; {left}")
