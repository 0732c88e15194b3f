"""A torch and a torch peer that are not there: the calls that tools/gpu makes, on numpy arrays.

``_scaled_mm`` returns emulated bits.
"""

import importlib.machinery
import types

import ml_dtypes
import numpy as np

import mmaemu_jax as mj

DTYPES = {
    "uint8": np.uint8,
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}


class Tensor:
    """An array on a device "cpu"."""

    def __init__(self, array: np.ndarray):
        self.array = array

    def to(self, device: str) -> "Tensor":
        assert device == "cpu"
        return self

    def view(self, dtype) -> "Tensor":
        return Tensor(self.array.view(dtype))

    def t(self) -> "Tensor":
        return Tensor(self.array.T)

    def cpu(self) -> "Tensor":
        return self

    def numpy(self) -> np.ndarray:
        return self.array


def scaled_mm(a, b, scale_a, scale_b, *, out_dtype, use_fast_accum, splitk=None, profile="hopper"):
    """torch's call, with the split of fake_cublaslt.c, and the peer's."""
    k = a.array.shape[1]
    split = (4 if use_fast_accum else 2, "contiguous") if k >= 8192 and splitk is None else 1
    y = mj.host.scaled_mm(
        a.array, b.array, scale_a.array, scale_b.array, out_dtype=out_dtype,
        use_fast_accum=use_fast_accum, profile=profile, splitk=split,
    )  # fmt: skip
    return Tensor(y)


def module() -> types.ModuleType:
    """What ``import torch`` finds."""
    torch = types.ModuleType("torch")
    torch.__spec__ = importlib.machinery.ModuleSpec("torch", None)
    torch.__version__ = "0, a fake"
    torch.from_numpy = Tensor
    torch.tensor = lambda value, *, device, dtype: Tensor(np.array(value, dtype))
    torch.ones = lambda shape, *, device: Tensor(np.ones(shape, np.float32))
    torch._scaled_mm = scaled_mm
    for name, dtype in DTYPES.items():
        setattr(torch, name, dtype)
    return torch


def peer() -> types.ModuleType:
    """What ``import mmaemu`` finds."""
    mmaemu = types.ModuleType("mmaemu")
    mmaemu.__spec__ = importlib.machinery.ModuleSpec("mmaemu", None)
    mmaemu.scaled_mm = scaled_mm
    return mmaemu
