"""Checks the machine code of the compiled CUDA kernels.

    python tools/check_sass.py BUILD [--architectures 80 ...]

BUILD is a CMake build folder with MMAEMU_JAX_CUDA=ON. Every kernel must be there for every wanted
architecture, the native kernels must consist of the FP8 tensor instructions, the IEEE kernel of
multiply-adds toward zero, and no kernel may hold a multiply-add that the compiler contracted.
cuobjdump is taken from the PATH, beside nvcc, or from the package nvidia-cuda-cuobjdump, which
needs nvidia-cuda-nvdisasm.
"""

import argparse
import collections
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys

FORMATS = ("E4M3", "E5M2")
PAIRS = [f"{a}.{b}" for a in FORMATS for b in FORMATS]
#: Object file -> (its own architecture or None, instructions that it must hold).
OBJECTS = {
    "portable_kernel.cu": (None, []),
    "ieee_kernel.cu": (None, ["FFMA.RZ", "FADD.RZ", "FADD.RP", "HMMA.1688.F32.BF16"]),
    "mma_sync_kernel.cu": ("89", [f"QMMA.16832.F32.{pair}" for pair in PAIRS]),
    "wgmma_kernel.cu": (
        "90a",
        [f"QGMMA.64x{n}x32.F32.{pair}" for n in (128, 256) for pair in PAIRS] + ["UTMALDG.2D"],
    ),
}
#: The one multiply-add of every kernel's epilogue (R17), where it has one.
EPILOGUES = {"ieee_kernel.cu", "mma_sync_kernel.cu", "wgmma_kernel.cu"}


def find_cuobjdump() -> str:
    """The path of cuobjdump."""
    candidates = [shutil.which("cuobjdump")]
    if nvcc := shutil.which("nvcc"):
        candidates.append(str(pathlib.Path(nvcc).resolve().parent / "cuobjdump"))
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        candidates += map(str, pathlib.Path(folder).glob("**/bin/cuobjdump"))
    for candidate in candidates:
        if candidate and pathlib.Path(candidate).exists():
            return candidate
    way_out = "pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm"
    sys.exit(f"check_sass: no cuobjdump. Way out: {way_out}")


def output_of(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def machine_code(cuobjdump: str, path: pathlib.Path) -> dict[str, list[str]]:
    """Of each architecture, the instructions of all kernels with "kernel" for each start of one."""
    code: dict[str, list[str]] = collections.defaultdict(list)
    architecture = ""
    for line in output_of(cuobjdump, "-sass", str(path)).splitlines():
        if found := re.match(r"arch = sm_(\w+)", line):
            architecture = found[1]
        elif re.match(r"\s*Function : ", line):
            code[architecture].append("kernel")
        elif found := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Za-z0-9_.]+)", line):
            code[architecture].append(found[1])
    return code


def problems_of(name: str, architecture: str, instructions: list[str], wanted: list[str]):
    """What is wrong with one object's code for one architecture."""
    counts = collections.Counter(instructions)
    for instruction in wanted:
        if not counts[instruction]:
            yield f"{name} sm_{architecture} has no {instruction}"
    plain = sum(n for op, n in counts.items() if op.startswith("FFMA") and ".RZ" not in op)
    expected = counts["kernel"] if name in EPILOGUES else 0
    if name == "wgmma_kernel.cu":
        expected -= 1  # the kernel that packs operands
    if plain != expected:
        yield f"{name} sm_{architecture} has {plain} multiply-adds, of which {expected} are wanted"


def check(build: pathlib.Path, architectures: list[str]) -> list[str]:
    """The problems of a build, printing what it holds."""
    cuobjdump = find_cuobjdump()
    problems = []
    for name, (own, wanted) in OBJECTS.items():
        paths = list(build.glob(f"csrc/cuda/CMakeFiles/mmaemu_cuda_*.dir/{name}.o"))
        if len(paths) != 1:
            problems.append(f"{name} was not built")
            continue
        code = machine_code(cuobjdump, paths[0])
        needed = [own] if own else architectures
        problems += [f"{name} has no code for sm_{a}" for a in needed if a not in code]
        if own is None and ".ptx" not in output_of(cuobjdump, "-lptx", str(paths[0])):
            problems.append(f"{name} has no PTX for later GPUs")
        for architecture, instructions in code.items():
            problems += problems_of(name, architecture, instructions, wanted)
            kernels = instructions.count("kernel")
            size = len(instructions) - kernels
            print(f"{name:20} sm_{architecture:4} {kernels:2} kernels, {size} instructions")
    return problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--architectures", nargs="+", default=["80"], metavar="NN")
    args = parser.parse_args()
    problems = check(args.build, args.architectures)
    sys.exit("\n".join(f"check_sass: {problem}" for problem in problems) or None)


if __name__ == "__main__":
    main()
