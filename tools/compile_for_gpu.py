"""What XLA compiles for an H100 that is not here: the package's calls and JAX's own FP8 dots.

    python tools/compile_for_gpu.py [--out FOLDER]

XLA compiles for a GPU by its description. It takes jax's CUDA plugin (the wheels
jax-cuda13-plugin and jax-cuda13-pjrt, or cuda12's), the ptxas of a CUDA toolkit, and a mmaemu_jax
with the CUDA extension (docs/cuda.md); no GPU and no driver. Checked is the optimised HLO: one call
per GEMM, with the workspace where a kernel wants one, no transpose, no collective over M; and that
XLA's own calls are what emulate() takes them for. Nothing runs: bits are for a GPU.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import shutil
import sys
from collections.abc import Callable, Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLAGS = "--xla_gpu_enable_triton_gemm=false --xla_gpu_autotune_level=0"

nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
TOOLKIT = pathlib.Path(nvcc).resolve().parent.parent
# Before JAX: its libraries are not needed to compile.
os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
os.environ["XLA_FLAGS"] = f"{FLAGS} --xla_gpu_cuda_data_dir={TOOLKIT}"
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests")]

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from gpu import native_programs  # noqa: E402
from jax.experimental import topologies  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402

import mmaemu_jax as mj  # noqa: E402
from mmaemu_jax import cuda, cuda_gate  # noqa: E402

#: An H100 SXM as XLA describes one.
H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_core: 233472
  shared_memory_per_block_optin: 232448
  core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 device_memory_size: 84929347584
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  cuda_compute_capability { major: 9 }
}
runtime_version { major: 12 minor: 8 patch: 0 }
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 7 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
OURS, THEIRS = 'custom_call_target="mmaemu_scaled_mm', r"__cublas\$lt\$matmul\$f8"
TRANSPOSE = r"f8e4m3fn\S* transpose\("
E4M3, ONE = jnp.float8_e4m3fn, np.float32(1)


@dataclasses.dataclass(frozen=True)
class Case:
    """A program, its arguments' shapes, and how often a pattern occurs in its optimised HLO."""

    name: str
    function: Callable
    arguments: tuple
    counts: dict[str, int]


def mm(a, b, backend: str = "auto", out_dtype=jnp.bfloat16):
    return mj.scaled_mm(a, b, ONE, ONE, out_dtype=out_dtype, splitk=1, backend=backend)


def own_cases(devices) -> Iterator[Case]:
    """The package's calls."""
    one = jax.sharding.SingleDeviceSharding(devices[0])
    mesh = jax.sharding.Mesh(np.array(devices), ("x",))

    def fp8(*shape, sharding=one):
        return jax.ShapeDtypeStruct(shape, E4M3, sharding=sharding)

    def over(*names):
        return NamedSharding(mesh, PartitionSpec(*names))

    a, nk, kn = fp8(64, 256), fp8(128, 256), fp8(256, 128)
    one_call = {OURS: 1, TRANSPOSE: 0}
    for kernel in ("wgmma", "ieee", "portable"):
        backend = f"cuda:{kernel}"
        counts = one_call | {f'kernel = "{kernel}"': 1, r"u8\[": 0}
        yield Case(f"{kernel} nk", lambda a, b, k=backend: mm(a, b.T, k), (a, nk), counts)
    wants = {r", u8\[\d+\]": 1}
    yield Case("workspace", lambda a, b: mm(a, b, "cuda:wgmma"), (a, kn), one_call | wants)
    yield Case("auto", mm, (a, kn), one_call | {'kernel = "ieee"': 1})
    batched = jax.vmap(lambda a, b: mm(a, b.T))
    yield Case("vmap", batched, (fp8(3, 64, 256), fp8(3, 128, 256)), one_call)
    rows = (fp8(64, 256, sharding=over("x")), fp8(128, 256, sharding=over()))
    none = {"all-gather": 0, "all-reduce": 0}
    yield Case("sharded M", lambda a, b: mm(a, b.T), rows, one_call | none)
    depth = (fp8(64, 256, sharding=over(None, "x")), fp8(128, 256, sharding=over(None, "x")))
    yield Case("sharded K", lambda a, b: mm(a, b.T), depth, {OURS: 1, "all-reduce": 0})
    reference = {OURS: 0, THEIRS: 0}
    yield Case("reference", lambda a, b: mm(a, b.T, "reference"), (a, nk), reference)


def their_cases(devices) -> Iterator[Case]:
    """JAX's own dots: library calls with FP8 operands, the scale of the result an operand."""
    one = jax.sharding.SingleDeviceSharding(devices[0])
    for name, function, arguments in native_programs.programs(dry=False):
        specs = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=one), arguments
        )
        scale = r"custom-call\(%\S+, %\S+, %loop_\S+, %\S+\).*" + THEIRS
        counts = {THEIRS: 1}
        if name.startswith("flax"):
            counts = {THEIRS: 2, scale: 2} if "backward" in name else {THEIRS: 1}
            counts |= {'"epilogue":"BIAS"': int("bias" in name)}
        else:
            counts[f'"operand_precision":["{name.split()[0]}"'.replace("[", r"\[")] = 1
        yield Case(name, function, specs, counts)


def check(case: Case, folder: pathlib.Path) -> list[str]:
    """Compiles a case and writes its HLO; which patterns do not occur as often as they should."""
    text = jax.jit(case.function).lower(*case.arguments).compile().as_text() or ""
    (folder / f"{case.name.replace(' ', '_')}.hlo.txt").write_text(text)
    found = {pattern: len(re.findall(pattern, text)) for pattern in case.counts}
    return [f"{p} occurs {n} times, not {case.counts[p]}" for p, n in found.items()
            if n != case.counts[p]]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "hlo")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(cuda.extension(), str):
        sys.exit(f"compile_for_gpu: {cuda.extension()}. Way out: docs/cuda.md")
    topology = topologies.get_topology_desc("", "cuda", target_config=H100, topology="1x1x2")
    # The described GPU, and kernels of which nothing bad is known.
    cuda.gpus = lambda: (cuda.Gpu("NVIDIA H100 80GB HBM3", 90, 132),)
    cuda_gate.verdict = lambda kernel: ""
    problems = []
    for case in (*own_cases(topology.devices), *their_cases(topology.devices)):
        wrong = check(case, folder)
        problems += [f"{case.name}: {text}" for text in wrong]
        print(f"{case.name:<24} {'; '.join(wrong) or 'ok'}", flush=True)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
