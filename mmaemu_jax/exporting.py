"""jax.export: programs of this package as files."""

from jax import export

from mmaemu_jax import _native


def export_checks() -> list[export.DisabledSafetyCheck]:
    """The ``disabled_checks`` that :func:`jax.export.export` needs for this package's kernels.

    JAX vouches only for its own custom calls. Ours is named by a version, ``mmaemu_scaled_mm_v1``,
    which changes whenever its attributes, or the bits for given attributes, change: a saved program
    runs with the bits it was saved with, or not at all. Whoever loads it imports mmaemu_jax, which
    registers the kernels; without, running it fails with "No FFI handler registered for
    mmaemu_scaled_mm_v1".
    """
    return [export.DisabledSafetyCheck.custom_call(_native.GEMM_TARGET)]
