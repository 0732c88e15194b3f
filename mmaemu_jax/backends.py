"""Which backends exist, and which of them this process can run."""

import dataclasses

from mmaemu_jax import _native, config
from mmaemu_jax.errors import BackendUnavailableError, message, unknown_name


@dataclasses.dataclass(frozen=True)
class BackendStatus:
    """One backend: its name, whether it can run here, and why not."""

    name: str
    usable: bool
    why_not: str = ""


def backends_status() -> tuple[BackendStatus, ...]:
    """Every backend, fastest CPU kernel first. All usable ones return the same bits (R24)."""
    cpu = [BackendStatus(f"cpu:{name}", ok, why) for name, ok, why in _native.cpu_targets()]
    return (
        BackendStatus("cpu", True),
        *cpu,
        BackendStatus("reference", True),
        BackendStatus("cuda", False, "this build has no CUDA kernels"),
    )


def check_backend(function: str, backend: str) -> None:
    """Refuses a backend that does not exist or cannot run here.

    Raises:
        TypeError: not a string.
        ValueError: no backend of that name.
        BackendUnavailableError: it exists and cannot run here.
    """
    if not isinstance(backend, str):
        raise TypeError(f"{function}: backend must be a string, got {type(backend).__name__}.")
    if backend == "auto":
        return
    status = {s.name: s for s in backends_status()}
    if backend not in status:
        error = unknown_name("backend", backend, ["auto", *status])
        raise ValueError(f"{function}: {error}")
    if not status[backend].usable:
        raise BackendUnavailableError(
            message(
                f"{function}: backend {backend!r} cannot run here: {status[backend].why_not}.",
                ["backend='auto' (same bits)", "backend='reference' (same bits, slower)"],
            )
        )


def cpu_kernel(backend: str) -> str:
    """The kernel name that the CPU handler takes for a checked ``backend``.

    ``MMAEMU_JAX_CPU_TARGET`` replaces "auto"; a name it cannot run is refused by the handler.
    """
    if backend.startswith("cpu:"):
        return backend.removeprefix("cpu:")
    return config.CPU_TARGET or "auto"
