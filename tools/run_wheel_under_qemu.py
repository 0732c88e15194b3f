"""Runs an AArch64 wheel inside JAX under QEMU: the self-test and the recorded projections.

    python tools/run_wheel_under_qemu.py dist/*-cp311-*aarch64.whl [--folder build/qemu]

On Debian, with qemu-user and apt-get. Nothing is installed: Python for AArch64 comes from Debian's
packages, jax and what it needs from PyPI's AArch64 wheels, all unpacked into a folder that later
runs use again. Minutes the first time; QEMU then takes some 20 times as long as the processor.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import zipfile

JAX = ("jax==0.10.2", "jaxlib==0.10.2")
#: Beside what they depend on. jaxlib and numpy need libstdc++.
PACKAGES = ("python3", "libstdc++6")
MIRROR = "http://deb.debian.org/debian"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
COMMANDS = (("selftest",), ("demo", "--backend", "cpu:neon", "--no-speed"))


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/qemu"))
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    root, libraries, package = folder / "root", folder / "libraries", folder / "package"
    if not root.exists():
        fetch_debian(folder, root)
    (python,) = (root / "usr/bin").glob("python3.[0-9]*[0-9]")
    if not libraries.exists():
        fetch_jax(folder, python.name.removeprefix("python"), libraries)
    shutil.rmtree(package, ignore_errors=True)
    zipfile.ZipFile(arguments.wheel).extractall(package)
    environment = {
        "PATH": "/usr/bin",
        "PYTHONHOME": str(root / "usr"),
        "PYTHONPATH": f"{package}:{libraries}",
    }
    for command in COMMANDS:
        program = ["qemu-aarch64", "-L", root, python, "-m", "mmaemu_jax", *command]
        print("$ python -m mmaemu_jax", *command, flush=True)
        code = subprocess.run(program, env=environment, cwd=folder).returncode
        if code:
            return code
    return 0


def fetch_debian(folder: pathlib.Path, root: pathlib.Path) -> None:
    """Unpacks this Debian's Python and C library for AArch64 into ``root``."""
    apt, release = folder / "apt", pathlib.Path("/etc/os-release").read_text()
    values = dict(line.split("=", 1) for line in release.splitlines() if "=" in line)
    for name in ("lists/partial", "archives/partial"):
        (apt / name).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    source = f"deb [signed-by={KEYS}] {MIRROR} {values['VERSION_CODENAME']} main\n"
    (apt / "sources.list").write_text(source)
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "root",
        "Dir::State": apt,
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt,
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
    }
    command = ["apt-get", "-q", *(f"-o{name}={value}" for name, value in settings.items())]
    subprocess.run([*command, "update"], check=True)
    install = ["install", "--yes", "--download-only", "--no-install-recommends", *PACKAGES]
    subprocess.run([*command, *install], check=True)
    for archive in sorted((apt / "archives").glob("*.deb")):
        subprocess.run(["dpkg", "-x", archive, root], check=True)


def fetch_jax(folder: pathlib.Path, version: str, libraries: pathlib.Path) -> None:
    """Unpacks jax for AArch64 and that Python, and what it needs, into ``libraries``."""
    wheels = folder / "wheels"
    tags = [f"--platform=manylinux_2_{minor}_aarch64" for minor in range(17, 35)]
    download = ["download", "-q", "--only-binary=:all:", f"--python-version={version}", *tags]
    command = [sys.executable, "-m", "pip", *download, "-d", wheels, *JAX]
    subprocess.run(command, check=True)
    for wheel in wheels.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(libraries)


if __name__ == "__main__":
    sys.exit(main())
