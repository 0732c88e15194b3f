"""Calls of the public functions that are good except for what a test changes."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np

import mmaemu_jax as mj
from mmaemu_jax import api, prepare

E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
FNUZ, E8M0 = ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e8m0fnu
BF16 = ml_dtypes.bfloat16
B200 = "b200-mma-sync-experimental"


def zeros(*shape, dtype=E4M3) -> np.ndarray:
    return np.zeros(shape, dtype)


def f32(value, *shape) -> np.ndarray:
    return np.full(shape, value, np.float32)


def scaled_mm(**changes):
    """A good call of scaled_mm with changes."""
    arguments = {
        "input": zeros(32, 48),
        "mat2": zeros(48, 16),
        "scale_a": 0.5,
        "scale_b": 0.25,
        "out_dtype": jnp.bfloat16,
        "splitk": 1,
    }
    return mj.scaled_mm(**{**arguments, **changes})


def record_bind(monkeypatch) -> list:
    """Let calls of the primitive be recorded, and compute nothing."""
    calls = []

    def bind(a, b, scale_a, scale_b, scale_result=None, c=None, **params):
        calls.append({**params, "operands": (a, b, scale_a, scale_b, scale_result, c)})
        n = b.shape[-1 if params["b_layout"] == "kn" else -2]
        return jnp.zeros((*a.shape[:-1], n), params["out_dtype"])

    monkeypatch.setattr(api.primitive, "bind", bind)
    for module in (api, prepare):
        monkeypatch.setattr(module, "check_backend", lambda function, backend: None)
    return calls
