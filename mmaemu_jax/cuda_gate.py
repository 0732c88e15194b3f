"""The gate of the CUDA kernels: before one is used, it must agree with the portable one here.

It runs once per process and kernel, on every GPU, when the first program that could use the kernel
is lowered: a few GEMMs, many for an experimental kernel.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator

import jax
import numpy as np

from mmaemu_jax import cuda, primitive
from mmaemu_jax.accumulate import (
    CONTIGUOUS_128,
    INTERLEAVED_64,
    AccumulationPlan,
    SplitK,
    make_plan,
)
from mmaemu_jax.dimensions import BLayout
from mmaemu_jax.errors import (
    BackendFallbackWarning,
    BackendUnavailableError,
    ExperimentalKernelWarning,
    message,
)
from mmaemu_jax.formats import FORMATS, Fp8Format
from mmaemu_jax.instruction import InstructionModel, get_preset
from mmaemu_jax.notices import Notice
from mmaemu_jax.testing.bits import compare_bits
from mmaemu_jax.testing.cases import families, operands

#: Around every tile edge, with short and long chains; all K are multiples of 16 but the last.
SHAPES = (
    (16, 16, 32),
    (64, 128, 128),
    (72, 264, 160),
    (200, 136, 1040),
    (130, 96, 4096),
    (65, 80, 77),
)
#: Which arithmetic each kernel runs itself.
PRESETS = {"wgmma": ("hopper",), "mma_sync": ("ada",), "ieee": ("ada", "hopper")}
#: Of a kernel that GPUs have run before, every so many-th case.
STRIDE = 7


def plans(preset: str) -> Iterator[AccumulationPlan]:
    """Fast and slow, unsplit and split in each of the preset's schemes (R10 to R13)."""
    chunk = get_preset(preset).slow_chunk
    rule = CONTIGUOUS_128 if preset == "hopper" else INTERLEAVED_64
    splits = [SplitK(1), *(SplitK(s, scheme) for s in (2, 5) for scheme in rule.schemes)]
    for fast, split in itertools.product((True, False), splits):
        yield make_plan(fast, split, rule, chunk)


def accumulators(
    kernel: str,
    a: np.ndarray,
    b: np.ndarray,
    *,
    model: InstructionModel,
    plan: AccumulationPlan,
    b_layout: BLayout = "nk",
) -> np.ndarray:
    """The fp32 accumulators [M, N] of one GEMM by one CUDA kernel, unscaled."""
    run = functools.partial(
        primitive.bind,
        model=model,
        plan=plan,
        out_dtype=np.float32,
        b_layout=b_layout,
        backend=cuda.UNGATED + kernel,
    )
    one = np.ones((), np.float32)
    return np.asarray(jax.jit(run)(a, b, one, one))


@dataclasses.dataclass(frozen=True)
class GateCase:
    """One GEMM of the gate: ``number`` seeds its operands."""

    number: int
    preset: str
    shape: tuple[int, int, int]
    plan: AccumulationPlan
    formats: tuple[Fp8Format, Fp8Format]
    b_layout: BLayout
    family: str

    def operands(self) -> tuple[np.ndarray, np.ndarray]:
        """a [M, K] and b in its layout; NaN and Inf are among the codes."""
        codes = operands(self.family, *self.formats, *self.shape, self.number, finite=False)
        a, b = (x.view(fmt.dtype) for x, fmt in zip(codes, self.formats, strict=True))
        return a, np.ascontiguousarray(b.T) if self.b_layout == "kn" else b

    def __str__(self) -> str:
        names = " x ".join(fmt.name for fmt in self.formats)
        return f"{self.preset} {names} {self.shape} b {self.b_layout} {self.family} {self.plan}"


def gate_cases(kernel: str, experimental: bool) -> list[GateCase]:
    """What ``kernel`` must compute: shapes x plans, with formats and families in turn."""
    pairs, names = list(itertools.product(FORMATS, FORMATS)), families()
    every = [
        (preset, shape, plan)
        for preset in PRESETS.get(kernel, ())
        for shape, plan in itertools.product(SHAPES, plans(preset))
    ]
    return [
        GateCase(
            number,
            *case,
            formats=pairs[number % len(pairs)],
            b_layout="kn" if number % 3 == 0 else "nk",
            family=names[number % len(names)],
        )
        for number, case in enumerate(every)
        if experimental or number % STRIDE == 0
    ]


def disagreement(kernel: str, experimental: bool) -> str:
    """Where ``kernel`` and the portable kernel differ on the default device; empty if nowhere."""
    for case in gate_cases(kernel, experimental):
        a, b = case.operands()
        model = get_preset(case.preset).model
        actual, desired = (
            accumulators(name, a, b, model=model, plan=case.plan, b_layout=case.b_layout)
            for name in (kernel, cuda.PORTABLE)
        )
        report = compare_bits(actual, desired, max_examples=1)
        if not report.equal:
            return f"{case}: {report}"
    return ""


@functools.cache
def verdict(kernel: str) -> str:
    """Why ``kernel`` must not run in this process; empty if it agreed on every GPU."""
    known = cuda.kernel_named(kernel)
    reason = cuda.why_not_kernel(known)
    if reason:
        return reason
    for device in jax.local_devices(backend="gpu"):
        with jax.default_device(device):
            found = disagreement(kernel, known.experimental)
        if found:
            reason = f"its self-test on {device} failed: {found}"
            break
    cuda.verdicts[kernel] = reason
    return reason


def choose(function: str, backend: str) -> tuple[str, tuple[Notice, ...]]:
    """What the handler is asked for in a program with a checked ``backend``, and the warnings.

    Raises:
        BackendUnavailableError: the kernel asked for cannot run here or failed its self-test.
    """
    name = cuda.kernel_attribute(backend)
    if backend.startswith(cuda.UNGATED):
        return name, ()
    if name == "auto":
        return _fastest_that_passed(function)
    reason = verdict(name)
    ways_out = ["backend='cuda' (same bits)"]
    if reason:
        text = f"{function}: backend {backend!r} cannot run here: {reason}."
        raise BackendUnavailableError(message(text, ways_out))
    if not cuda.kernel_named(name).experimental:
        return name, ()
    text = (
        f"{function}: backend {backend!r} is experimental: no run of it on a GPU is recorded. It "
        "agreed with the portable kernel on this machine."
    )
    return name, (Notice(ExperimentalKernelWarning, message(text, ways_out)),)


def _fastest_that_passed(function: str) -> tuple[str, tuple[Notice, ...]]:
    if cuda.why_not():
        return "auto", ()  # a program for another machine
    notices = []
    for kernel in cuda.kernels():
        if kernel.experimental:
            continue
        reason = verdict(kernel.name)
        if not reason:
            return kernel.name, tuple(notices)
        text = f"{function}: the CUDA kernel {kernel.name!r} is not used: {reason}."
        way_out = "report this with the output of 'python -m mmaemu_jax info'"
        notices.append(Notice(BackendFallbackWarning, message(text, [way_out])))
    raise AssertionError("the portable kernel agrees with itself")
