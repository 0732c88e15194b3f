"""How fast are the kernels, beside the GPU's own FP8 GEMM and the torch peer's kernels?"""

import importlib.util
import time

import jax
import jax.numpy as jnp
import numpy as np
from gpu_check import Outcome, Run

import mmaemu_jax as mj
from gpu.bits import device, kernels

SHAPES = ((4096, 4096, 4096), (8192, 8192, 4096))
REPETITIONS = 5


def median_seconds(function, *arguments) -> float:
    """Of a call, after a first one that compiles."""
    jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def native(fast: bool):
    """XLA's own FP8 GEMM: the precision says whether it accumulates fast."""
    precision = jax.lax.Precision.DEFAULT if fast else jax.lax.Precision.HIGHEST
    dims = (((1,), (1,)), ((), ()))

    @jax.jit
    def program(a, b):
        return jax.lax.dot_general(
            a, b, dims, precision=precision, preferred_element_type=jnp.bfloat16
        )

    return program


def emulated(backend: str, fast: bool):
    """accumulate by one kernel, to bfloat16."""
    options = {"use_fast_accum": fast, "splitk": 1, "backend": backend}
    one = np.float32(1)
    return jax.jit(lambda a, b: mj.scaled_mm(a, b.T, one, one, out_dtype=jnp.bfloat16, **options))


def peer_seconds(shape, fast: bool) -> float | None:
    """The torch peer on the same GPU, where it is installed."""
    if importlib.util.find_spec("mmaemu") is None or importlib.util.find_spec("torch") is None:
        return None
    import mmaemu
    import torch

    if not torch.cuda.is_available():
        return None
    m, n, k = shape
    a = torch.randint(0, 100, (m, k), dtype=torch.uint8, device="cuda").view(torch.float8_e4m3fn)
    b = torch.randint(0, 100, (n, k), dtype=torch.uint8, device="cuda").view(torch.float8_e4m3fn)
    one = torch.ones((), device="cuda")
    times = []
    for _ in range(1 + REPETITIONS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        mmaemu.scaled_mm(
            a, b.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=fast, splitk=1
        )
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return float(np.median(times[1:]))


def measure(run: Run, budget: float) -> Outcome:
    """Tera multiply-adds per second of every kernel, as a share of the native GEMM's."""
    end, rows = time.monotonic() + budget, []
    for shape in ((64, 64, 128),) if run.dry else SHAPES:
        m, n, k = shape
        codes = np.random.default_rng(0).integers(0, 120, (m + n, k), np.uint8)
        with jax.default_device(device(run)):
            a, b = (jnp.asarray(x.view(jnp.float8_e4m3fn)) for x in (codes[:m], codes[m:]))
            for fast in (True, False):
                candidates = {"native": native(fast)}
                candidates |= {name: emulated(name, fast) for name in kernels(run)}
                candidates.pop("cuda:portable", None)  # seconds a call
                for name, function in candidates.items():
                    if time.monotonic() > end:
                        break
                    rate = m * n * k / median_seconds(function, a, b) / 1e12
                    rows.append((shape, "fast" if fast else "slow", name, round(rate, 4)))
                seconds = peer_seconds(shape, fast) if time.monotonic() < end else None
                if seconds:
                    rate = round(m * n * k / seconds / 1e12, 4)
                    rows.append((shape, "fast" if fast else "slow", "torch peer", rate))
    text = "; ".join(
        f"{m} x {n} x {k} {mode} {name} {rate}" for (m, n, k), mode, name, rate in rows
    )
    return Outcome("", bool(rows), f"Tmac/s: {text}", details=rows)
