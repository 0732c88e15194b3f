"""The profile of a GPU that was recorded: what is known of its kind, and its own table."""

import dataclasses
import pathlib

from mmaemu_jax.cuda_cublaslt import MEASURED_PROFILES, CublasLt
from mmaemu_jax.platforms import get_profile, write_profile


def write_recorded_profile(library: CublasLt, folder: pathlib.Path, table_id: str) -> str:
    """Writes profile.json beside the recorded table; returns a sentence for the user.

    Arithmetic and split rule are taken over from the measured GPU of this compute capability,
    which is a guess until recorded GEMMs were replayed: the profile is experimental.
    """
    driver = library.driver
    known = MEASURED_PROFILES.get(driver.capability)
    if known is None:
        major, minor = driver.capability
        return (
            f"no profile.json: the arithmetic of compute capability {major}.{minor} is not known; "
            "mmaemu_jax.identify can measure a GEMM"
        )
    base = get_profile(known)
    profile = dataclasses.replace(
        base,
        name=table_id.removeprefix("heur_"),
        gpu=str(driver),
        library=f"cuBLASLt {library.version}",
        evidence="experimental",
        split_evidence="experimental",
        table_id=str(folder / table_id),
        provenance=f"python -m mmaemu_jax record; arithmetic and split rule of profile {known}",
    )
    path = folder / "profile.json"
    write_profile(profile, path)
    return f"profile {path}, with the arithmetic of profile {known} (experimental until replayed)"
