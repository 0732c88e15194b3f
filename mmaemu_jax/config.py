"""The two environment variables, read once at import. Nothing else reads the environment."""

import os

#: Name of the profile used where none is given (``MMAEMU_JAX_PROFILE``); checked when it is used.
DEFAULT_PROFILE: str = os.environ.get("MMAEMU_JAX_PROFILE") or "hopper"

#: Instruction set to force on the CPU, for tests (``MMAEMU_JAX_CPU_TARGET``), or None.
CPU_TARGET: str | None = os.environ.get("MMAEMU_JAX_CPU_TARGET") or None
