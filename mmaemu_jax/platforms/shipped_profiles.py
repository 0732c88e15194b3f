"""The profiles that come with the package, and how any profile is named."""

import dataclasses

from mmaemu_jax import config
from mmaemu_jax.accumulate import CONTIGUOUS_128, INTERLEAVED_64
from mmaemu_jax.arguments import type_name, unknown_option
from mmaemu_jax.platforms.profile import Profile, Rejection
from mmaemu_jax.platforms.profile_file import is_profile_file, read_profile

_E4M3_TO_E5M2: tuple[Rejection, ...] = (("e4m3", "e4m3", "float8_e5m2"),)
_MIB = 1 << 20

HOPPER = Profile(
    "hopper",
    "hopper",
    CONTIGUOUS_128,
    gpu="NVIDIA H100 PCIe (sm_90, 114 SMs)",
    library="cuBLASLt 12.8.3.14",
    caller="torch 2.7.1 torch._scaled_mm",
    workspace_bytes=_MIB,
    rejects=_E4M3_TO_E5M2,
    evidence="inherited",
    split_evidence="inherited",
    table_id="heur_h100pcie_lt12.8.3.14",
    provenance="mmaemu 0.1.0's replay of live H100 PCIe calls, agreed with on h100_oracle",
)
ADA = Profile(
    "ada",
    "ada",
    INTERLEAVED_64,
    gpu="NVIDIA GeForce RTX 4060 (sm_89, 24 SMs)",
    library="cuBLASLt 12.8.3.14",
    caller="torch 2.7.1 torch._scaled_mm",
    workspace_bytes=_MIB,
    rejects=_E4M3_TO_E5M2,
    evidence="replayed",
    split_evidence="replayed",
    table_id="heur_rtx4060_lt12.8.3.14",
    provenance="RTX 4060 recordings rtx4060_gemm, rtx4060_epilogue and rtx4060_call",
)


def _variant(base: Profile, suffix: str, **changes) -> Profile:
    return dataclasses.replace(base, name=f"{base.name}-{suffix}", **changes)


_TE_2_3 = {"caller": "Transformer Engine 2.3", "split_evidence": "experimental"}
_SHIPPED = (
    HOPPER,
    _variant(HOPPER, "te", workspace_bytes=32 * _MIB, **_TE_2_3),
    _variant(HOPPER, "ws0", workspace_bytes=0),
    _variant(
        HOPPER,
        "xla",
        caller="XLA's cuBLASLt call, autotuning off",
        workspace_bytes=32 * _MIB,
        evidence="experimental",
        split_evidence="experimental",
        provenance="the arithmetic and table of profile hopper; the table was recorded with "
        "torch's descriptor, no call of XLA was",
        pad_key_to=16,
    ),
    ADA,
    _variant(ADA, "te", workspace_bytes=4 * _MIB, **_TE_2_3),
    _variant(ADA, "ws0", workspace_bytes=0),
    Profile(
        "hopper-experimental",
        "hopper",
        CONTIGUOUS_128,
        rejects=_E4M3_TO_E5M2,
        gpu="another Hopper GPU or cuBLASLt version",
        caller="torch._scaled_mm",
        provenance="the arithmetic of profile hopper, where nothing was recorded",
    ),
    Profile(
        "b200-mma-sync-experimental",
        "b200_mma_sync",
        gpu="NVIDIA B200, mma.sync only",
        caller="mma.sync kernels",
        provenance="instruction level only; no model of the B200's cuBLAS",
    ),
)
_PROFILES = {p.name: p for p in _SHIPPED}


def list_profiles() -> tuple[str, ...]:
    """Names of the shipped profiles."""
    return tuple(_PROFILES)


def get_profile(profile: str | Profile | None = None) -> Profile:
    """The profile of that name, the default one for None, or the given :class:`Profile` itself.

    A name that ends in ".json" is a profile file (:func:`read_profile`). The default is "hopper",
    or what ``MMAEMU_JAX_PROFILE`` named when the package was imported.

    Raises:
        TypeError: ``profile`` is neither a name, a Profile nor None.
        ValueError: no profile of that name; the message lists those there are.
    """
    return profile_argument("get_profile", profile)


def profile_argument(function: str, profile: str | Profile | None) -> Profile:
    """:func:`get_profile` for ``function``, which the errors name."""
    if isinstance(profile, Profile):
        return profile
    if profile is not None and not isinstance(profile, str):
        raise TypeError(
            f"{function}: profile must be a name, a mmaemu_jax.Profile or None, "
            f"got {type_name(profile)}."
        )
    name = config.DEFAULT_PROFILE if profile is None else profile
    if is_profile_file(name):
        return read_profile(name)
    if name not in _PROFILES:
        where = "profile" if profile is not None else "profile of MMAEMU_JAX_PROFILE"
        way_out = "pass a mmaemu_jax.Profile of your own, or the path of a profile file (.json)"
        raise unknown_option(function, where, name, _PROFILES, way_out)
    return _PROFILES[name]
