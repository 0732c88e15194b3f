"""Builds both extensions for this machine alone: its GPU, its Python, its jaxlib.

Nothing is fetched and nothing is installed: CMake, nanobind and XLA's headers are this
interpreter's, and the package lies in a folder that the other sections import from.
"""

import concurrent.futures
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable

from gpu.section import ROOT, Outcome, Section

_TAIL = 3000


class BuildError(Exception):
    """A command of the build failed: its name and the end of what it said."""


def build(section: Section) -> Outcome:
    """work/package/mmaemu_jax with _native and, where nvcc and a GPU are, _native_cuda."""
    start, package = time.monotonic(), section.work / "package"
    shutil.rmtree(package, ignore_errors=True)
    stage(package)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        cpu, cuda = (pool.submit(timed, section, name, compile_) for name, compile_ in TARGETS)
    seconds = cpu.result()  # without it no section has anything to run
    try:
        architecture = cuda.result()[1]
    except BuildError as error:
        section.note(error=str(error))
        text = f"no CUDA kernels: {str(error).splitlines()[0]}; the CPU's part took"
        return Outcome(False, f"{text} {seconds[0]:.0f} s")
    total = time.monotonic() - start
    parts = f"CPU's part {seconds[0]:.0f} s, kernels {cuda.result()[0]:.0f} s"
    where = f"{nvcc_version()}, {os.cpu_count()} CPUs"
    return Outcome(True, f"{architecture} in {total:.0f} s ({parts}), {where}")


def timed(section: Section, what: str, compile_: Callable) -> tuple[float, str]:
    """Seconds that an extension took, and what it was built for."""
    start = time.monotonic()
    made_for = compile_(section)
    seconds = time.monotonic() - start
    section.note(built=what, made_for=made_for, seconds=round(seconds, 1))
    return seconds, made_for


def stage(package: pathlib.Path) -> None:
    """The Python part, without what an earlier build in place left there."""
    ignore = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "mmaemu_jax", package / "mmaemu_jax", ignore=ignore)


def compile_cpu(section: Section) -> str:
    """The CPU's extension."""
    _compile(section.work, "cpu", "_native", ["-DMMAEMU_JAX_CUDA=OFF"])
    return "the CPU"


def compile_cuda(section: Section) -> str:
    """The kernels' extension, for one architecture, which is returned."""
    architecture = section.architecture or gpu_architecture()
    options = ["-DMMAEMU_JAX_CUDA=ON", f"-DMMAEMU_JAX_CUDA_ARCHITECTURES={architecture}"]
    if nvcc := find_nvcc():
        options.append(f"-DCMAKE_CUDA_COMPILER={nvcc}")
    _compile(section.work, "cuda", "_native_cuda", options)
    return architecture


TARGETS = (("_native", compile_cpu), ("_native_cuda", compile_cuda))


def find_nvcc() -> str | None:
    """On the PATH, or where CUDA is usually installed."""
    usual = sorted(map(str, pathlib.Path("/usr/local").glob("cuda*/bin/nvcc")))
    return shutil.which("nvcc") or (usual[-1] if usual else None)


def _compile(work: pathlib.Path, name: str, target: str, options: list[str]) -> None:
    folder = work / "build" / name
    ninja = ["-G", "Ninja"] if shutil.which("ninja") else []
    configure = [*cmake(), *ninja, "-S", str(ROOT), "-B", str(folder), *options]
    configure += [f"-DPython_EXECUTABLE={sys.executable}"]
    configure += [f"-DMMAEMU_JAX_XLA_INCLUDE={xla_headers()}"]
    call("configure", configure, work / f"build_{name}.log")
    jobs = str(os.cpu_count() or 2)
    compile_ = [*cmake(), "--build", str(folder), "--target", target, "-j", jobs]
    call("compile", compile_, work / f"build_{name}.log")
    (made,) = folder.rglob(f"{target}.*.so")
    shutil.copy2(made, work / "package" / "mmaemu_jax" / made.name)


def cmake() -> list[str]:
    """The command, or the module of that name."""
    found = shutil.which("cmake")
    return [found] if found else [sys.executable, "-m", "cmake"]


def xla_headers() -> pathlib.Path:
    """Those of this very jaxlib: what is built here is for here."""
    spec = importlib.util.find_spec("jaxlib")
    if spec is None or spec.origin is None:
        raise BuildError("jaxlib is not installed for this interpreter")
    return pathlib.Path(spec.origin).parent / "include"


def call(what: str, command: list[str], log: pathlib.Path) -> None:
    """Runs a command; all that it says goes to ``log``.

    Raises:
        BuildError: it failed, or there is no such program.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(f"{what}: {error}") from error
    with open(log, "a") as stream:
        stream.write(f"$ {' '.join(command)}\n{done.stdout}{done.stderr}\n")
    if done.returncode:
        said = (done.stdout + done.stderr)[-_TAIL:]
        first = re.search(r".*(?:error|Error).*", said)
        raise BuildError(f"{what}: {first[0].strip() if first else 'failed'}\n{said}")


def gpu_architecture() -> str:
    """CMake's name for the GPU that is there, such as "90-real".

    Raises:
        BuildError: nvidia-smi shows none.
    """
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, check=False).stdout
    except OSError as error:
        raise BuildError(f"nvidia-smi: {error}") from error
    found = sorted({f"{major}{minor}-real" for major, minor in re.findall(r"(\d+)\.(\d)", said)})
    if not found:
        raise BuildError("nvidia-smi shows no GPU")
    return ";".join(found)


def nvcc_version() -> str:
    """What nvcc says it is."""
    said = subprocess.run([find_nvcc() or "nvcc", "--version"], capture_output=True, text=True)
    found = re.search(r"release [\d.]+", said.stdout)
    return f"nvcc {found[0] if found else 'of an unknown version'}"
