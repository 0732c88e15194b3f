"""Who computes GEMMs here, for tests that compare them: one row per implementation."""

from mmaemu_jax import backends


def jax_backends() -> list[str]:
    """Names of the CPU kernels that this build has and of the reference, usable or not."""
    names = [status.name for status in backends.backends_status()]
    return [name for name in names if name.startswith("cpu:") or name == "reference"]
