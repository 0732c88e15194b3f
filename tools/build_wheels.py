"""Builds the source distribution, and from it the wheels for Linux, and checks them.

    make wheels [DIST=dist] [PYTHONS="python3.11 python3.13"] [PROCESSORS="x86_64 aarch64"]

One wheel per interpreter and processor; that of a Python from 3.12 on serves all later ones (stable
ABI). For AArch64 the wheels are cross-compiled (csrc/aarch64-linux-gnu.cmake), with the headers of
the interpreter here: the pyconfig.h of x86-64 and AArch64 differ in nothing that a module sees.
libstdc++ is inside; auditwheel names a wheel after the oldest C library that has the symbols it
needs.

Needs `pip install '.[release]'`, and g++-aarch64-linux-gnu unless AArch64 is left out.
"""

import argparse
import pathlib
import platform
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROCESSORS = ("x86_64", "aarch64")
TOOLCHAINS = {"aarch64": "csrc/aarch64-linux-gnu.cmake"}
OPTIONS = {
    "cmake.define.MMAEMU_JAX_STATIC_LIBSTDCXX": "ON",
    "cmake.define.MMAEMU_JAX_CUDA": "OFF",
    "cmake.define.MMAEMU_JAX_WERROR": "ON",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True, help="an empty folder")
    parser.add_argument("--pythons", nargs="+", required=True, help="such as python3.11")
    parser.add_argument("--processors", nargs="+", required=True, choices=PROCESSORS)
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    if out.exists() and any(out.iterdir()):
        parser.error(f"{out} is not empty.")
    unknown = set(arguments.processors) - {platform.machine(), *TOOLCHAINS}
    if unknown:
        parser.error(f"nothing here cross-compiles for {', '.join(unknown)}.")
    run(sys.executable, "-m", "build", "--sdist", "--outdir", out, ROOT)
    (sdist,) = out.glob("*.tar.gz")
    for python in arguments.pythons:
        for processor in arguments.processors:
            print(f"\n{python} on {processor}", flush=True)
            build(python, processor, sdist, out)
    run(sys.executable, "-m", "twine", "check", "--strict", *sorted(out.iterdir()))
    check = ROOT / "tools" / "check_distributions.py"
    return subprocess.run([sys.executable, check, *sorted(out.iterdir())]).returncode


def build(python: str, processor: str, sdist: pathlib.Path, out: pathlib.Path) -> None:
    """Builds one wheel into ``out``."""
    options = OPTIONS | cross_options(python, processor)
    settings = [f"--config-settings={name}={value}" for name, value in options.items()]
    with tempfile.TemporaryDirectory() as folder:
        run(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, *settings, sdist)
        (wheel,) = pathlib.Path(folder).glob("*.whl")
        run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", out, wheel)


def cross_options(python: str, processor: str) -> dict[str, str]:
    """What a build for another processor is told; empty for this one's."""
    if processor == platform.machine():
        return {}
    code = "import sys; print('%d%d' % sys.version_info[:2])"
    version = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    suffix = f".cpython-{version.stdout.strip()}-{processor}-linux-gnu.so"
    return {
        "cmake.define.CMAKE_TOOLCHAIN_FILE": TOOLCHAINS[processor],
        "env._PYTHON_HOST_PLATFORM": f"linux-{processor}",
        "env.SETUPTOOLS_EXT_SUFFIX": suffix,
    }


def run(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True)


if __name__ == "__main__":
    sys.exit(main())
