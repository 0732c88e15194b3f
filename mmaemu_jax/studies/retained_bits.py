"""How many bits of a running sum a small addend still reaches: the "14 bits" of FP8 GEMMs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from mmaemu_jax.api import accumulate
from mmaemu_jax.arguments import unknown_option
from mmaemu_jax.formats import E4M3, E5M2
from mmaemu_jax.platforms import Profile, get_profile
from mmaemu_jax.studies.error_by_k import float32_product

#: The addends are 2^-j for j below this; 2^-24 is what float32 no longer adds to 1.
_ADDENDS = 25


@dataclasses.dataclass(frozen=True)
class RetainedBits:
    """Significant bits of a sum that starts at 1, by where the small product stands.

    Attributes:
        within_block: in the instruction's own block, beside the 1.
        next_block: in the next block of a chain, where the 1 is the accumulator.
        next_chunk: in the next chunk of slow accumulation, or as much further along a chain.
    """

    within_block: int
    next_block: int
    next_chunk: int


def retained_bits(accumulation: str = "fast", profile: str | Profile | None = None) -> RetainedBits:
    """Measures which 2^-j survive in 1 + 2^-j: bits are one more than the largest such j.

    Args:
        accumulation: "fast", "slow" (R10, R11) or "float32", XLA's own dot on this machine.
        profile: whose fast and slow; None is the default profile.

    Raises:
        ValueError: an unknown accumulation or profile.
        UnsupportedFeatureError: "slow" on a profile where it was never characterised.
    """
    platform = get_profile(profile)
    preset = platform.arithmetic
    chunk = preset.slow_chunk or 4 * preset.nfma
    places = (1, preset.nfma, chunk)
    a, b = (jnp.asarray(x) for x in _operands(places, 2 * chunk))
    if accumulation == "float32":
        sums = float32_product(a, b)
    elif accumulation in ("fast", "slow"):
        fast = accumulation == "fast"
        sums = accumulate(a, b, use_fast_accum=fast, profile=platform, splitk=1)
    else:
        known = ("fast", "slow", "float32")
        raise unknown_option("retained_bits", "accumulation", accumulation, known)
    return RetainedBits(*_survivors(sums))


def _operands(places: tuple[int, ...], k: int) -> tuple[np.ndarray, np.ndarray]:
    """a [places, K] picks where the addend stands; b [addends, K] has 1 and all of 2^-j."""
    a = np.zeros((len(places), k), E4M3.dtype)
    b = np.zeros((_ADDENDS, k), E5M2.dtype)
    a[:, 0] = b[:, 0] = 1
    for row, place in enumerate(places):
        a[row, place] = 2.0**-8
        b[:, place] = np.ldexp(1.0, 8 - np.arange(_ADDENDS))
    return a, b


def _survivors(sums: jax.Array) -> list[int]:
    """For each row, one more than the largest j with sum > 1; the sums are exact or 1."""
    kept = np.asarray(sums) > 1
    return [int(np.flatnonzero(row).max()) + 1 for row in kept]
