"""The torch package ``mmaemu`` on the same operands."""

import importlib
import importlib.util
import time
from typing import Any

import numpy as np

from mmaemu_jax.bench.case import BenchCase
from mmaemu_jax.bench.program import SCALE_A, SCALE_B
from mmaemu_jax.errors import message
from mmaemu_jax.testing.bits import compare_bits

#: Multiply-adds the peer is given: it gets so many rows of the input, all weights.
_PEER_MACS = 1 << 27


def require_peer() -> None:
    """ValueError with the way to install it, if the peer or torch is missing."""
    if importlib.util.find_spec("mmaemu") is None or importlib.util.find_spec("torch") is None:
        raise ValueError(
            message(
                "bench: --vs-peer needs the packages mmaemu and torch in this environment.",
                ["pip install mmaemu torch", "leave --vs-peer out"],
            )
        )


def measure_peer(
    case: BenchCase, a: np.ndarray, w: np.ndarray, result: np.ndarray, threads: int
) -> dict[str, Any]:
    """GMAC/s of the peer's CPU path, and whether its bits are ours; or why it refuses the call."""
    torch = importlib.import_module("torch")
    mmaemu = importlib.import_module("mmaemu")
    torch.set_num_threads(threads)
    m, n, k = case.shape
    rows = min(m, max(16, _PEER_MACS // (n * k) // 16 * 16))
    x, weights = (_tensor(torch, codes) for codes in (a[:rows], w))
    split = case.mode.split
    scales = [torch.tensor(scale, dtype=torch.float32) for scale in (SCALE_A, SCALE_B)]
    options = {
        "out_dtype": getattr(torch, case.out_dtype),
        "use_fast_accum": case.mode.use_fast_accum,
        "profile": case.profile,
        "splitk": 1 if split.S == 1 else (split.S, split.scheme),
    }
    try:
        mmaemu.scaled_mm(x[:16], weights.t(), *scales, **options)  # builds its tables
        start = time.perf_counter()
        actual = mmaemu.scaled_mm(x, weights.t(), *scales, **options)
        seconds = time.perf_counter() - start
    except (mmaemu.MmaemuError, ValueError, KeyError) as error:  # KeyError: a profile it lacks
        return {"refused": f"{type(error).__name__}: {error}"}
    bits = np.frombuffer(
        actual.contiguous().view(torch.uint8).numpy().tobytes(), np.dtype(case.out_dtype)
    )
    report = compare_bits(bits.reshape(rows, n), result[:rows], max_examples=1)
    return {
        "version": mmaemu.__version__,
        "rows": rows,
        "seconds": seconds,
        "gmacs": rows * n * k / seconds / 1e9,
        "equal": report.equal,
        "difference": "" if report.equal else str(report),
    }


def _tensor(torch, codes: np.ndarray):
    raw = torch.from_numpy(codes.view(np.uint8).copy())
    return raw.view(getattr(torch, codes.dtype.name))
