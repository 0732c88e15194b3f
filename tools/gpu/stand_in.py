"""A GPU that is not there: what stands for one in a dry run, so that every line is executed.

The CUDA kernels' names, gate and lowering are the real ones; the CPU's kernels compute. cuBLASLt
and the driver are the tests' fake, whose GEMMs are replaced by emulated ones, so that every
comparison can be seen to succeed. ``wrong`` names a kernel whose bits shall be wrong, so that it
can be seen to fail.
"""

import dataclasses
import functools
import importlib
import pathlib
import subprocess

import cuda_fakes
import jax
import numpy as np
import pytest

from gpu.section import ROOT
from mmaemu_jax import backends, cuda, cuda_gate, primitive
from mmaemu_jax.cuda_cublaslt import CublasLt, GemmCall, Refusal
from mmaemu_jax.cuda_driver import CudaDriver

H100 = cuda.Gpu("NVIDIA H100 PCIe", 90, 114)
#: One of the gate's shapes: the others differ in size.
GATE_SHAPES = ((65, 80, 77),)


def install(wrong: str = "") -> pytest.MonkeyPatch:
    """Makes this process see an H100; ``undo()`` of the result ends that."""
    patch = pytest.MonkeyPatch()
    cuda_fakes.install(patch, H100)
    patch.setattr(cuda_gate, "SHAPES", GATE_SHAPES)
    selftest = importlib.import_module(
        "mmaemu_jax.selftest"
    )  # the package's attribute is the function
    patch.setattr(selftest, "SETTINGS", selftest.SETTINGS[:1])
    patch.setattr(selftest, "SHAPE", (3, 5, 70))
    patch.setattr(selftest, "_compute", functools.partial(_compute, selftest._compute))
    devices, local_devices = jax.devices, jax.local_devices
    patch.setattr(jax, "devices", lambda platform=None: devices(_cpu_for_gpu(platform)))
    patch.setattr(
        jax, "local_devices", lambda *, backend=None: local_devices(backend=_cpu_for_gpu(backend))
    )
    patch.setattr(
        primitive, "_lower_to_kernel", functools.partial(_lower, primitive._lower_to_kernel, wrong)
    )
    on_cpu = frozenset({"cpu"})
    cpu = primitive._LOWERINGS[on_cpu]
    patch.setitem(primitive._LOWERINGS, on_cpu, functools.partial(_choose, cpu))
    return patch


def _compute(compute, setting, arguments, backend):
    """The CPU's kernel in place of the reference, which takes a second to compile."""
    return compute(setting, arguments, "auto" if backend == "reference" else backend)


def _cpu_for_gpu(platform):
    return "cpu" if platform in cuda.PLATFORMS else platform


def _choose(cpu, ctx, *operands, params):
    """A kernel of CUDA's that was asked for by name passes through the gate, as on a GPU."""
    rule = primitive._lower_cuda if cuda.is_cuda(params.backend) else cpu
    return rule(ctx, *operands, params=params)


def _lower(lower, wrong, ctx, *operands, params, kernel):
    """The CPU's handler in place of CUDA's."""
    if kernel == wrong:
        model = dataclasses.replace(params.model, frac=params.model.frac - 1)
        params = dataclasses.replace(params, model=model)
    if kernel in {name for name, *_ in cuda_fakes.KERNELS}:
        kernel = backends.cpu_kernel("auto")
    return lower(ctx, *operands, params=params, kernel=kernel)


class StandInCublasLt(CublasLt):
    """The tests' fake library, called as the real one is; the bits are emulated."""

    def __init__(self, folder: pathlib.Path):
        path = str(folder / "libcublasLt.so.12.8.3.14")
        source = ROOT / "tests" / "fake_cublaslt.c"
        subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", path], check=True)
        super().__init__(path, CudaDriver(path))

    def gemm(self, call: GemmCall, a, b, scale_a, scale_b, scale_result=None, *, bias=None, c=None):
        """As the library would: bias and c are added before the one rounding."""
        from gpu.library import DTYPES, emulated, hypotheses, split_argument

        found = super().gemm(call, a, b, scale_a, scale_b, scale_result, bias=bias, c=c)
        if isinstance(found, Refusal):
            return found
        bits, algorithm = found
        split, scales = split_argument(self, algorithm), (scale_a, scale_b, scale_result)
        if bias is None and c is None:
            y = emulated(call, a, b, scales, "hopper", split)
        else:
            addend = bias.view(DTYPES["bfloat16"]) if c is None else c.view(DTYPES[call.out_dtype])
            addend = np.broadcast_to(addend, bits.shape)
            y = hypotheses(call, a, b, "hopper", split, addend)["one multiply-add"]
        return y.view(bits.dtype), algorithm
