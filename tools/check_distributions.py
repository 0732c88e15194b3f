"""Checks source distributions and wheels before anyone gets them.

    python tools/check_distributions.py dist/*

Needs git (what belongs into them is what the checkout tracks), readelf, and the package
"packaging". A source distribution holds every tracked file but .ci. A wheel holds the package's
files as they are in the checkout, the licences, valid metadata, and one compiled module for the
interpreters and the processor that its name promises, which needs only the C library and libgcc.

Exit code 0: everything is as it should be; 1: something is not, and is printed; 2: usage.
"""

import argparse
import email.parser
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile

from packaging.metadata import Metadata
from packaging.utils import parse_wheel_filename

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = "mmaemu_jax"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: Of the checkout, what no source distribution holds; and what only a distribution has.
LEFT_OUT, ADDED = (".ci/",), {"PKG-INFO"}
#: Beside the package in a wheel.
DIST_INFO = {"METADATA", "WHEEL", "RECORD", "entry_points.txt"} | {
    f"licenses/{name}" for name in PROJECT["license-files"]
}
CORE = {"jax", "jaxlib", "numpy"}
#: What readelf calls the processors of platform tags.
MACHINES = {"x86_64": "Advanced Micro Devices X86-64", "aarch64": "AArch64"}
#: Libraries that every Linux with this C library has.
LIBRARIES = re.compile(r"(libc|libm|libgcc_s|ld-linux-[a-z0-9-]+)\.so\.\d")


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("files", nargs="+", type=pathlib.Path, help="*.tar.gz and *.whl")
    files = parser.parse_args().files
    listed = run("git", "-C", str(ROOT), "ls-files", "-z").split("\0")
    tracked = {name for name in listed if name and not name.startswith(LEFT_OUT)}
    problems = 0
    for file in files:
        found = check_wheel(file, tracked) if file.suffix == ".whl" else check_sdist(file, tracked)
        print(f"{file.name}: {'; '.join(found) if found else 'ok'}")
        problems += len(found)
    return int(problems > 0)


def check_sdist(file: pathlib.Path, tracked: set[str]) -> list[str]:
    """What is wrong with a source distribution."""
    top = f"{PACKAGE}-{PROJECT['version']}"
    with tarfile.open(file) as archive:
        names = {member.name for member in archive.getmembers() if member.isfile()}
        outside = [name for name in names if not name.startswith(f"{top}/")]
        found = [f"outside {top}: {name}" for name in sorted(outside)]
        inside = {name.removeprefix(f"{top}/") for name in names.difference(outside)}
        found += differences(inside, tracked | ADDED)
        if not found:
            member = archive.extractfile(f"{top}/PKG-INFO")
            assert member is not None
            found += check_metadata(member.read())
    return found


def check_wheel(file: pathlib.Path, tracked: set[str]) -> list[str]:
    """What is wrong with a wheel."""
    _, version, _, tags = parse_wheel_filename(file.name)
    info = f"{PACKAGE}-{version}.dist-info"
    package = {name for name in tracked if name.startswith(f"{PACKAGE}/")}
    with zipfile.ZipFile(file) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        modules = {name for name in names if name.endswith(".so")}
        found = differences(names - modules, package | {f"{info}/{name}" for name in DIST_INFO})
        if found:
            return found
        changed = (name for name in package if archive.read(name) != (ROOT / name).read_bytes())
        found += [f"not as in the checkout: {name}" for name in sorted(changed)]
        found += check_metadata(archive.read(f"{info}/METADATA"))
        own = email.parser.BytesParser().parsebytes(archive.read(f"{info}/WHEEL"))
        if set(own.get_all("Tag", [])) != {str(tag) for tag in tags}:
            found.append(f"WHEEL has the tags {own.get_all('Tag')}")
        expected = {module_name(tag.interpreter, tag.abi, tag.platform) for tag in tags}
        if modules != expected:
            return [*found, f"compiled modules {sorted(modules)}, not {sorted(expected)}"]
        with tempfile.TemporaryDirectory() as folder:
            module = archive.extract(modules.pop(), folder)
            found += check_module(module, {tag.platform for tag in tags})
    return found


def module_name(interpreter: str, abi: str, platform: str) -> str:
    """The compiled module's file for a tag."""
    if abi == "abi3":
        return f"{PACKAGE}/_native.abi3.so"
    python = interpreter.replace("cp", "cpython-")
    return f"{PACKAGE}/_native.{python}-{processor(platform)}-linux-gnu.so"


def processor(platform: str) -> str:
    """The processor of a platform tag."""
    return next((name for name in MACHINES if platform.endswith(f"_{name}")), platform)


def check_module(module: str, platforms: set[str]) -> list[str]:
    """What is wrong with a compiled module for these platform tags."""
    found = []
    for machine in sorted({MACHINES.get(processor(p), p) for p in platforms}):
        if f"Machine: {machine}" not in re.sub(" +", " ", run("readelf", "-hW", module)):
            found.append(f"the compiled module is not for {machine}")
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-dW", module))
    found += [f"needs {name}" for name in needed if not LIBRARIES.fullmatch(name)]
    versions = re.findall(r"Name: GLIBC_2\.(\d+)", run("readelf", "-VW", module))
    least = max(map(int, versions), default=0)
    promised = [int(m[1]) for p in platforms if (m := re.match(r"manylinux_2_(\d+)_", p))]
    found += [
        f"manylinux_2_{minor}, but needs glibc 2.{least}" for minor in promised if least > minor
    ]
    if not promised:
        found.append(f"no manylinux tag (it needs glibc 2.{least})")
    return found


def check_metadata(text: bytes) -> list[str]:
    """What is wrong with METADATA or PKG-INFO."""
    try:
        metadata = Metadata.from_email(text, validate=True)
    except ExceptionGroup as group:
        return [str(error) for error in group.exceptions]
    found = []
    if metadata.name != PROJECT["name"] or str(metadata.version) != PROJECT["version"]:
        found.append(f"metadata of {metadata.name} {metadata.version}")
    if metadata.description != (ROOT / PROJECT["readme"]).read_text():
        found.append("its description is not the README")
    core = {r.name for r in metadata.requires_dist or [] if "extra" not in str(r.marker)}
    if core != CORE:
        found.append(f"requires {sorted(core)}")
    return found


def differences(names: set[str], expected: set[str]) -> list[str]:
    """Files too many and too few."""
    return [
        *(f"must not be there: {name}" for name in sorted(names - expected)),
        *(f"missing: {name}" for name in sorted(expected - names)),
    ]


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
