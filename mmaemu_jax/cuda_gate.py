"""The gate of experimental CUDA kernels: they must agree with the portable one on this machine.

It runs once per process and kernel, on every GPU, when a program that asks for the kernel is
lowered.
"""

import functools
import itertools
from collections.abc import Iterator
from typing import Literal

import jax
import numpy as np

from mmaemu_jax import cuda
from mmaemu_jax.accumulate import CONTIGUOUS_128, INTERLEAVED_64, AccumulationPlan, SplitK, make_plan
from mmaemu_jax.errors import BackendUnavailableError, ExperimentalKernelWarning, message
from mmaemu_jax.formats import FORMATS, Fp8Format
from mmaemu_jax.instruction import InstructionModel, get_preset
from mmaemu_jax.notices import Notice
from mmaemu_jax.testing.bits import compare_bits
from mmaemu_jax.testing.cases import families, operands

BLayout = Literal["nk", "kn"]

#: Around every tile edge, with short and long chains; all K are multiples of 16 but the last.
SHAPES = ((16, 16, 32), (64, 128, 128), (72, 264, 160), (200, 136, 1040), (130, 96, 4096), (65, 80, 77))
#: Which arithmetic each kernel claims to be.
PRESETS = {"wgmma": "hopper", "mma_sync": "ada"}


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
    from mmaemu_jax import primitive  # which imports this module

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


def disagreement(kernel: str) -> str:
    """Where ``kernel`` and the portable kernel differ on the default device; empty if nowhere."""
    preset = PRESETS[kernel]
    model = get_preset(preset).model
    pairs = list(itertools.product(FORMATS, FORMATS))
    for number, (shape, plan) in enumerate(itertools.product(SHAPES, plans(preset))):
        formats = pairs[number % len(pairs)]
        layout: BLayout = "nk" if number % 3 else "kn"
        a, b = _operands(shape, formats, layout, number)
        actual, desired = (
            accumulators(name, a, b, model=model, plan=plan, b_layout=layout)
            for name in (kernel, cuda.PORTABLE)
        )
        report = compare_bits(actual, desired, max_examples=1)
        if not report.equal:
            names = " x ".join(fmt.name for fmt in formats)
            return f"{names} {shape} {plan} b {layout}: {report}"
    return ""


def _operands(shape: tuple[int, int, int], formats: tuple[Fp8Format, Fp8Format], layout: str, seed: int):
    family = list(families())[seed % len(list(families()))]
    codes = operands(family, *formats, *shape, seed, finite=False)
    a, b = (x.view(fmt.dtype) for x, fmt in zip(codes, formats, strict=True))
    return a, np.ascontiguousarray(b.T) if layout == "kn" else b


@functools.cache
def verdict(kernel: str) -> str:
    """Why ``kernel`` must not run in this process; empty if it agreed on every GPU."""
    reason = cuda.why_not_kernel(cuda.kernel_named(kernel))
    if reason:
        return reason
    for device in jax.devices("gpu"):
        with jax.default_device(device):
            found = disagreement(kernel)
        if found:
            return f"its self-test on {device} failed: {found}"
    return ""


def admit(function: str, backend: str) -> tuple[Notice, ...]:
    """The warnings that a checked CUDA ``backend`` deserves, after its gate.

    Raises:
        BackendUnavailableError: an experimental kernel cannot run here or failed its self-test.
    """
    name = cuda.kernel_attribute(backend)
    if name == "auto" or backend.startswith(cuda.UNGATED) or not cuda.kernel_named(name).experimental:
        return ()
    reason = verdict(name)
    ways_out = ["backend='cuda' (same bits)"]
    if reason:
        text = f"{function}: backend {backend!r} cannot run here: {reason}."
        raise BackendUnavailableError(message(text, ways_out))
    text = (
        f"{function}: backend {backend!r} is experimental: nobody has reported a GPU on which it "
        "ran. It agreed with the portable kernel on this one."
    )
    return (Notice(ExperimentalKernelWarning, message(text, ways_out)),)
