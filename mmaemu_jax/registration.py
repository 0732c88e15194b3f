"""The compiled handlers as XLA finds them: by name, in every program that the process runs.

Importing the package registers them, and no use of it is needed: a program that was exported
elsewhere, or compiled by another process, calls them without any Python of this package.
"""

import jax.ffi

from mmaemu_jax import _native, cuda


def register() -> None:
    """Tells XLA the handlers of this build."""
    for name, capsule in _native.registrations().items():
        jax.ffi.register_ffi_target(name, capsule, platform="cpu")
    extension = cuda.extension()
    if not isinstance(extension, str):
        for name, capsule in extension.registrations().items():
            jax.ffi.register_ffi_target(name, capsule, platform="CUDA")
