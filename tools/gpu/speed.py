"""How fast are the kernels, beside the GPU's own FP8 GEMM and the torch peer's kernels?"""

import importlib
import importlib.util
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

import mmaemu_jax as mj
from gpu.bits import gpus, trusted_kernels
from gpu.native_programs import dot
from gpu.section import Outcome, Section
from mmaemu_jax.bench.timing import seconds_of

SHAPES = ((4096, 4096, 4096), (8192, 8192, 4096))
#: The slow kernel's shape: it computes each output by itself.
PORTABLE_SHAPE = (1024, 1024, 1024)
DRY_SHAPE = (64, 64, 128)
#: Calls that are issued before the last one is waited for, and how often.
CALLS, REPETITIONS = 8, 5


def seconds_per_call(call: Callable) -> float:
    """Median over repetitions, after a first call that compiles."""
    one = seconds_of(call)
    one = min(one, seconds_of(call))
    calls = CALLS if one < 0.05 else 1
    times = [seconds_of(lambda: [call() for _ in range(calls)]) for _ in range(REPETITIONS)]
    return float(np.median(times)) / calls


def emulated(backend: str, fast: bool) -> Callable:
    """scaled_mm to bfloat16 by one kernel; b is [N, K]."""
    options = {"use_fast_accum": fast, "splitk": 1, "backend": backend, "out_dtype": jnp.bfloat16}
    one = np.float32(1)
    return lambda a, b: mj.scaled_mm(a, b.T, one, one, **options)


def candidates(names: list[str], fast: bool) -> Iterator[tuple[str, Callable]]:
    """XLA's own GEMM, whose precision says how it accumulates, and the kernels."""
    yield "native", dot("DEFAULT" if fast else "HIGHEST")
    for name in names:
        yield name, emulated(name, fast)


def torch_peer(codes_a: np.ndarray, codes_b: np.ndarray, fast: bool, device: str):
    """A call of the torch peer on the same operands, or None where it or its GPU is missing."""
    if importlib.util.find_spec("mmaemu") is None or importlib.util.find_spec("torch") is None:
        return None
    torch, mmaemu = importlib.import_module("torch"), importlib.import_module("mmaemu")
    if device == "cuda" and not torch.cuda.is_available():
        return None
    a, b = (
        torch.from_numpy(x.copy()).to(device).view(torch.float8_e4m3fn) for x in (codes_a, codes_b)
    )
    one = torch.ones((), device=device)
    options = {"out_dtype": torch.bfloat16, "use_fast_accum": fast, "splitk": 1}

    def call():
        y = mmaemu.scaled_mm(a, b.t(), one, one, profile="hopper", **options)
        if device == "cuda":
            torch.cuda.synchronize()
        return np.zeros(0) if y is None else ()

    return call


def measure(section: Section) -> Outcome:
    """Tera multiply-adds per second of everything, and as a share of the native GEMM's."""
    shapes = [DRY_SHAPE] if section.dry else [SHAPES[0], PORTABLE_SHAPE, SHAPES[1]]
    for shape in shapes:
        for fast in (True,) if section.dry else (True, False):
            for name, call in calls(section, shape, fast):
                if section.left < 0:
                    break
                rate = float(np.prod(shape)) / seconds_per_call(call) / 1e12
                mode = "fast" if fast else "slow"
                section.note(shape=shape, mode=mode, name=name, tmacs=round(rate, 6))
    return Outcome(bool(section.rows), f"Tmac/s: {summary(section.rows)}")


def calls(section: Section, shape, fast: bool) -> Iterator[tuple[str, Callable]]:
    """Named calls on one pair of operands."""
    m, n, k = shape
    codes = np.random.default_rng(0).integers(0, 120, (m + n, k), np.uint8)
    names = trusted_kernels(section)
    if shape not in (PORTABLE_SHAPE, DRY_SHAPE):
        names = [name for name in names if name != "cuda:portable"]
    with jax.default_device(gpus()[0]):
        a, b = (jnp.asarray(x.view(jnp.float8_e4m3fn)) for x in (codes[:m], codes[m:]))
        for name, function in candidates(names, fast):
            compiled = jax.jit(function)
            yield name, lambda f=compiled: f(a, b)
    peer = torch_peer(codes[:m], codes[m:], fast, "cpu" if section.dry else "cuda")
    if peer is not None:
        yield "torch peer", peer


def summary(rows: list[dict]) -> str:
    """Rates in a line, with their share of the native GEMM's."""
    native = {(*r["shape"], r["mode"]): r["tmacs"] for r in rows if r["name"] == "native"}
    said = []
    for row in rows:
        m, n, k = row["shape"]
        share = row["tmacs"] / (native.get((m, n, k, row["mode"])) or float("nan"))
        said.append(f"{m}x{n}x{k} {row['mode']} {row['name']} {row['tmacs']:.3g} ({share:.0%})")
    return "; ".join(said)
