"""The CUDA extension as Python sees it: is it here, which kernels, on which GPUs, how called.

Whatever a kernel's name, its bits are the portable one's (R24). A kernel that no GPU has run yet is
experimental: it runs only where it is asked for by name, warns, and only after it has agreed with
the portable kernel on every GPU of the process (:mod:`mmaemu_jax.cuda_gate`).
"""

import dataclasses
import functools
import importlib
from types import ModuleType

from mmaemu_jax.errors import BackendUnavailableError, message

MODULE = "mmaemu_jax._native_cuda"
#: How JAX names the platform: in lowering, and as a backend.
PLATFORMS = ("cuda", "gpu")
#: In front of a kernel's name: the backend by which its self-test runs it, past the gate.
UNGATED = "cuda-ungated:"
#: The kernel that runs everything, everywhere.
PORTABLE = "portable"
#: What the self-tests of kernels found so far in this process (cuda_gate.py): "" for no difference.
verdicts: dict[str, str] = {}
#: Operands of the warpgroup kernel start at multiples of this in its workspace.
_ALIGNMENT = 128
_WAYS_TO_BUILD = (
    "build it: pip install . -C cmake.define.MMAEMU_JAX_CUDA=ON, with nvcc 12 or 13 (docs/cuda.md)"
)


@dataclasses.dataclass(frozen=True)
class CudaKernel:
    """One kernel of the extension.

    Attributes:
        name: how it is asked for, as in backend="cuda:NAME".
        what: one line for people.
        experimental: no GPU has run it yet.
        capability: the compute capability it needs, times ten.
        exact_capability: no other capability will do.
    """

    name: str
    what: str
    experimental: bool
    capability: int
    exact_capability: bool

    def runs_on(self, capability: int) -> bool:
        """Whether a GPU of this compute capability (times ten) can run it."""
        if self.exact_capability:
            return capability == self.capability
        return capability >= self.capability


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A GPU of this process: its name, compute capability times ten, and number of SMs."""

    name: str
    capability: int
    sm_count: int

    def __str__(self) -> str:
        return f"{self.name} (sm_{self.capability}, {self.sm_count} SMs)"


@functools.cache
def extension() -> ModuleType | str:
    """The compiled module, or why there is none."""
    try:
        return importlib.import_module(MODULE)
    except ModuleNotFoundError:
        return "this build has no CUDA kernels"
    except ImportError as error:
        return f"the CUDA kernels of this build cannot be loaded: {error}"


def kernels() -> tuple[CudaKernel, ...]:
    """The kernels of the extension, fastest first; empty without it."""
    module = extension()
    return () if isinstance(module, str) else tuple(CudaKernel(*k) for k in module.kernels())


@functools.cache
def gpus() -> tuple[Gpu, ...]:
    """The GPUs that the CUDA driver shows to this process."""
    module = extension()
    return () if isinstance(module, str) else tuple(Gpu(*device) for device in module.devices())


def why_not() -> str:
    """Why no CUDA kernel can run here; empty if one can."""
    module = extension()
    if isinstance(module, str):
        return module
    return "" if gpus() else "there is no GPU, or no driver for it"


def why_not_kernel(kernel: CudaKernel) -> str:
    """Why ``kernel`` cannot run on some GPU of this process; empty if nothing is known against it.

    Its self-test counts once it has run.
    """
    if why_not():
        return why_not()
    unfit = [gpu for gpu in gpus() if not kernel.runs_on(gpu.capability)]
    if not unfit:
        return verdicts.get(kernel.name, "")
    only = "" if kernel.exact_capability else " or later"
    needed = f"{kernel.capability // 10}.{kernel.capability % 10}{only}"
    return f"it needs compute capability {needed}, and {unfit[0]} is here"


def fastest() -> CudaKernel:
    """What "auto" takes here for a model that it runs; the portable kernel runs all others."""
    return next(k for k in kernels() if not k.experimental and not why_not_kernel(k))


def kernel_named(name: str) -> CudaKernel:
    """The kernel of that name."""
    return next(kernel for kernel in kernels() if kernel.name == name)


def kernel_attribute(backend: str) -> str:
    """What the handler takes for a checked ``backend``: a kernel's name or "auto"."""
    return backend.partition(":")[2] or "auto"


def is_cuda(backend: str) -> bool:
    """Whether ``backend`` asks for CUDA by name."""
    return backend == "cuda" or backend.startswith(("cuda:", UNGATED))


def require_extension(function: str, backend: str) -> None:
    """Refuses a backend that was asked for by name where the extension is missing.

    Raises:
        BackendUnavailableError: with the way to build it.
    """
    module = extension()
    if isinstance(module, str):
        raise BackendUnavailableError(
            message(
                f"{function}: backend {backend!r} cannot run here: {module}.",
                [_WAYS_TO_BUILD, "backend='auto' (same bits)"],
            )
        )


def workspace_bytes(kernel: str, m: int, n: int, k: int, b_layout: str) -> int:
    """Device memory that the handler wants as a second result; 0 for none.

    The warpgroup kernel reads its operands by the tensor memory accelerator: [M, K] and [N, K] with
    rows of a multiple of 16 bytes. Anything else is copied, one batch element at a time.
    """
    dims = (m, n, k)
    if kernel != "wgmma" or not all(isinstance(dim, int) for dim in dims):
        return 0
    if b_layout == "nk" and k % 16 == 0:
        return 0
    row = -(-k // 16) * 16
    return sum(-(-lines * row // _ALIGNMENT) * _ALIGNMENT for lines in (m, n)) + _ALIGNMENT
