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


@dataclasses.dataclass(frozen=True)
class BackendChoice:
    """Which backend computes a call, and why each of the others does not."""

    name: str
    skipped: tuple[BackendStatus, ...]


def choose_backend(backend: str, platform: str) -> BackendChoice:
    """What a checked ``backend`` comes to on ``platform`` ("cpu", "gpu", ...).

    A single tile that the kernel's own bounds exclude is computed by the portable kernel.
    """
    every = [s for s in backends_status() if s.name != "cpu"]
    if backend == "reference" or platform != "cpu":
        name = "reference"
    else:
        kernel = cpu_kernel(backend)
        usable = [s.name for s in every if s.name.startswith("cpu:") and s.usable]
        name = usable[0] if kernel == "auto" else f"cpu:{kernel}"
    why = {s.name: s.why_not or _why_skipped(s.name, backend, platform) for s in every}
    return BackendChoice(
        name, tuple(dataclasses.replace(s, why_not=why[s.name]) for s in every if s.name != name)
    )


def _why_skipped(name: str, backend: str, platform: str) -> str:
    if name.startswith("cpu:") and platform != "cpu":
        return f"the program is for {platform}"
    if backend not in ("auto", "cpu") or name == "reference":
        return f"backend={backend!r} was asked for" if backend != "auto" else "slower, same bits"
    forced = config.CPU_TARGET
    return f"MMAEMU_JAX_CPU_TARGET is {forced!r}" if forced else "a faster kernel can run"


def cpu_kernel(backend: str) -> str:
    """The kernel name that the CPU handler takes for a checked ``backend``.

    ``MMAEMU_JAX_CPU_TARGET`` replaces "auto"; a name it cannot run is refused by the handler.
    """
    if backend.startswith("cpu:"):
        return backend.removeprefix("cpu:")
    return config.CPU_TARGET or "auto"
