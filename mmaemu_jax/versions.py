"""The versions that a result depends on."""

import importlib.metadata
import platform

import jax
import numpy as np

from mmaemu_jax import _native


def versions() -> dict[str, str]:
    """Of this package, jax, jaxlib, numpy and Python."""
    return {
        "mmaemu_jax": _native.VERSION,
        "jax": jax.__version__,
        "jaxlib": importlib.metadata.version("jaxlib"),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
