"""A CUDA extension that is not there: kernels and GPUs as data, for what Python decides on them."""

import functools
import types

import pytest

from mmaemu_jax import cuda, cuda_gate

#: As csrc/cuda/kernels.cc has them; tests/test_cuda.py compares where the extension is built.
KERNELS = (
    ("wgmma", "w", True, 90, True),
    ("mma_sync", "m", True, 89, True),
    ("ieee", "i", False, 80, False),
    ("portable", "p", False, 0, False),
)
H200 = cuda.Gpu("NVIDIA H200", 90, 132)
A100 = cuda.Gpu("NVIDIA A100", 80, 108)
RTX_4060 = cuda.Gpu("NVIDIA GeForce RTX 4060", 89, 24)


def install(monkeypatch: pytest.MonkeyPatch, *gpus: cuda.Gpu) -> None:
    """Makes the package see the extension and these GPUs; verdicts are forgotten."""
    module = types.SimpleNamespace(
        kernels=lambda: KERNELS, registrations=dict, ARCHITECTURES="none, a fake"
    )
    monkeypatch.setattr(cuda, "extension", lambda: module)
    monkeypatch.setattr(cuda, "gpus", lambda: gpus)
    # Other memories, so that no verdict of a fake outlives its test.
    monkeypatch.setattr(cuda, "verdicts", {})
    monkeypatch.setattr(cuda_gate, "verdict", functools.cache(cuda_gate.verdict.__wrapped__))


def remove(monkeypatch: pytest.MonkeyPatch, reason: str = "this build has no CUDA kernels") -> None:
    """Makes the package see no extension."""
    monkeypatch.setattr(cuda, "extension", lambda: reason)
    monkeypatch.setattr(cuda, "gpus", tuple)
