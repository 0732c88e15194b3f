"""Memory that a call needs beside its operands and its result."""

import ctypes
import gc
import pathlib
import sys
from collections.abc import Callable

import jax

_STATUS = pathlib.Path("/proc/self/status")
_CLEAR_REFS = pathlib.Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


def extra_bytes(call: Callable) -> tuple[object, int | None]:
    """The result of ``call()`` and its peak extra memory; None where this system cannot tell.

    It is the rise of the process's resident memory above its level before the call, less the
    result. The kernel of Linux keeps the peak and is asked to forget the earlier one, and glibc
    to return the memory it holds, so what came before does not hide the rise. With another
    allocator that keeps freed memory the figure is a lower bound.
    """
    gc.collect()
    _return_freed_memory()
    if sys.platform != "linux" or not _reset_peak():
        return jax.block_until_ready(call()), None
    before = _resident("VmRSS")
    result = jax.block_until_ready(call())
    return result, max(0, _resident("VmHWM") - before - result.nbytes)


def _return_freed_memory() -> None:
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's alone
        if trim is not None:
            trim(0)


def _reset_peak() -> bool:
    try:
        _CLEAR_REFS.write_text(_RESET_PEAK)
    except OSError:  # a container may mount /proc read-only
        return False
    return True


def _resident(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"bench: {_STATUS} has no field {field}.")
