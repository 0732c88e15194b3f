"""Which backends exist, and which of them this process can run."""

import dataclasses

from mmaemu_jax import _native, config, cuda
from mmaemu_jax.arguments import unknown_option
from mmaemu_jax.errors import BackendFallbackWarning, BackendUnavailableError, message
from mmaemu_jax.instruction import InstructionModel
from mmaemu_jax.notices import Notice

_PORTABLE = "cpu:scalar"

#: The processors that each SIMD kernel is built for; other builds do not have it.
_PROCESSORS = {
    "cpu:avx512_vbmi": "x86-64",
    "cpu:avx512": "x86-64",
    "cpu:avx2": "x86-64",
    "cpu:neon": "AArch64",
}


@dataclasses.dataclass(frozen=True)
class BackendStatus:
    """One backend: its name, whether it can run here, and why not."""

    name: str
    usable: bool
    why_not: str = ""


def backends_status() -> tuple[BackendStatus, ...]:
    """Every backend of this build, fastest CPU kernel first. Usable ones agree in every bit (R24).

    SIMD kernels are ``cpu:avx512_vbmi``, ``cpu:avx512`` and ``cpu:avx2`` on x86-64, ``cpu:neon`` on
    AArch64.
    """
    cpu = [BackendStatus(f"cpu:{name}", ok, why) for name, ok, why in _native.cpu_targets()]
    gpu = [(f"cuda:{kernel.name}", cuda.why_not_kernel(kernel)) for kernel in cuda.kernels()]
    return (
        BackendStatus("cpu", True),
        *cpu,
        BackendStatus("reference", True),
        BackendStatus("cuda", not cuda.why_not(), cuda.why_not()),
        *(BackendStatus(name, not why, why) for name, why in gpu),
    )


def check_backend(function: str, backend: str) -> None:
    """Refuses a backend that does not exist or cannot run here.

    Raises:
        ValueError: no backend of that name.
        BackendUnavailableError: it exists and cannot run here, or ``MMAEMU_JAX_CPU_TARGET`` names
            a kernel that cannot.
    """
    status = {s.name: s for s in backends_status()}
    if backend in ("auto", "cpu"):
        _check_forced_target(function, status)
        return
    if cuda.is_cuda(backend):
        cuda.require_extension(function, backend)
    if backend in status:
        why_not = status[backend].why_not
    elif backend in _PROCESSORS:
        why_not = f"it is a kernel for {_PROCESSORS[backend]} processors"
    else:
        way_out = "backend='auto' takes the fastest; all give the same bits"
        raise unknown_option(function, "backend", backend, ["auto", *status], way_out)
    if why_not:
        raise BackendUnavailableError(
            message(
                f"{function}: backend {backend!r} cannot run here: {why_not}.",
                ["backend='auto' (same bits)", "backend='reference' (same bits, slower)"],
            )
        )


def _check_forced_target(function: str, status: dict[str, BackendStatus]) -> None:
    forced = config.CPU_TARGET
    if forced is None or forced == "auto":
        return
    usable = [n.removeprefix("cpu:") for n, s in status.items() if s.usable and n[:4] == "cpu:"]
    if forced not in usable:
        raise BackendUnavailableError(
            message(
                f"{function}: MMAEMU_JAX_CPU_TARGET={forced!r} is not a kernel that can run here; "
                f"usable: {', '.join(usable)}.",
                ["unset the variable", f"set it to one of {', '.join(usable)}"],
            )
        )


@dataclasses.dataclass(frozen=True)
class BackendChoice:
    """Which backend computes a call, and why each of the others does not."""

    name: str
    skipped: tuple[BackendStatus, ...]


def choose_backend(
    backend: str, platform: str, model: InstructionModel | None = None
) -> BackendChoice:
    """What a checked ``backend`` comes to on ``platform`` ("cpu", "gpu", ...) for ``model``.

    A SIMD kernel hands a ``model`` that it does not run to the portable one; None is one that it
    runs.
    """
    every = [s for s in backends_status() if s.name != "cpu"]
    simd = model is None or _native.simd_kernels_run(*dataclasses.astuple(model))
    if backend != "reference" and platform in cuda.PLATFORMS and not cuda.why_not():
        return _choose_cuda(backend, simd, every)
    if backend == "reference" or platform != "cpu":
        name = "reference"
    else:
        kernel = cpu_kernel(backend)
        usable = [s.name for s in every if s.name.startswith("cpu:") and s.usable]
        name = usable[0] if kernel == "auto" else f"cpu:{kernel}"
        name = name if simd else _PORTABLE
    why = {s.name: s.why_not or _why_skipped(s.name, backend, platform) for s in every}
    if not simd and name == _PORTABLE:
        why |= {n: "it does not run this instruction model" for n in why if n[:4] == "cpu:"}
    return BackendChoice(
        name, tuple(dataclasses.replace(s, why_not=why[s.name]) for s in every if s.name != name)
    )


def _choose_cuda(backend: str, simd: bool, every: list[BackendStatus]) -> BackendChoice:
    """:func:`choose_backend` on CUDA, where every kernel hands over what it does not run."""
    asked = cuda.kernel_attribute(backend)
    name = (cuda.fastest().name if asked == "auto" else asked) if simd else cuda.PORTABLE
    every = [s for s in every if s.name != "cuda"]
    why = {s.name: s.why_not or _why_skipped(s.name, backend, "gpu") for s in every}
    if not simd:
        why |= {n: "it does not run this instruction model" for n in why if n[:5] == "cuda:"}
    chosen = f"cuda:{name}"
    others = (s for s in every if s.name != chosen)
    return BackendChoice(chosen, tuple(dataclasses.replace(s, why_not=why[s.name]) for s in others))


def _why_skipped(name: str, backend: str, platform: str) -> str:
    if name != "reference" and cuda.is_cuda(name) != (platform in cuda.PLATFORMS):
        return f"the program is for {platform}"
    if backend not in ("auto", "cpu", "cuda") or name == "reference":
        return f"backend={backend!r} was asked for" if backend != "auto" else "slower, same bits"
    if cuda.is_cuda(name):
        if cuda.kernel_named(cuda.kernel_attribute(name)).experimental:
            return "experimental: no GPU has run it yet; ask for it by name"
        return "a faster kernel can run"
    forced = config.CPU_TARGET
    return f"MMAEMU_JAX_CPU_TARGET is {forced!r}" if forced else "a faster kernel can run"


def fallback_notices(function: str, backend: str, platforms: str) -> tuple[Notice, ...]:
    """The warning of a checked ``backend`` in a program for ``platforms`` without kernels.

    Raises:
        BackendUnavailableError: a CPU kernel was asked for by name.
    """
    check_platforms(function, backend, platforms)
    if backend == "reference":
        return ()
    why = f" ({cuda.why_not()})" if "cuda" in platforms and cuda.why_not() else ""
    text = message(
        f"{function}: there are no kernels for {platforms}{why}; the float64 reference computes "
        "the same bits, slower.",
        ["run this part on the CPU", "backend='reference' to say that this is wanted"],
    )
    return (Notice(BackendFallbackWarning, text),)


def check_platforms(function: str, backend: str, platforms: str) -> None:
    """Refuses a kernel that was asked for by name in a program for other ``platforms``.

    Raises:
        BackendUnavailableError: see above.
    """
    if backend in ("auto", "reference"):
        return
    device = "gpu" if cuda.is_cuda(backend) else "cpu"
    raise BackendUnavailableError(
        message(
            f"{function}: backend {backend!r} was asked for in a program for {platforms}.",
            [
                "backend='auto'",
                f"jax.jit under jax.default_device(jax.devices({device!r})[0])",
            ],
        )
    )


def cpu_kernel(backend: str) -> str:
    """The kernel name that the CPU handler takes for a checked ``backend``.

    ``MMAEMU_JAX_CPU_TARGET`` replaces "auto".
    """
    if backend.startswith("cpu:"):
        return backend.removeprefix("cpu:")
    return config.CPU_TARGET or "auto"
