"""Asking the running GPU's own cuBLASLt, on request (``splitk="live"``).

A provider answers for one GPU and library. It is asked only about profiles of exactly that GPU and
library: whatever another one does says nothing about the profile's bits.
"""

import functools
from typing import Protocol

from mmaemu_jax.accumulate import SplitK
from mmaemu_jax.cuda_cublaslt import CublasLt, GemmCall, Refusal, scheme_of
from mmaemu_jax.errors import BackendUnavailableError
from mmaemu_jax.platforms.split_decision import SplitDecision, SplitQuery, check_modelled
from mmaemu_jax.platforms.split_setting import Setting


class LiveProvider(Protocol):
    """What a backend that reaches a cuBLASLt implements."""

    @property
    def gpu(self) -> str:
        """The running GPU, written as :attr:`Profile.gpu` is."""
        ...

    @property
    def library(self) -> str:
        """Its library and version, written as :attr:`Profile.library` is."""
        ...

    def split(self, M: int, N: int, K: int, setting: Setting) -> SplitK | str:
        """What the library's first heuristic result says, or why it gives none."""
        ...


class CublasLtProvider:
    """The cuBLASLt of this process's first GPU."""

    def __init__(self, library: CublasLt):
        self._library = library

    @property
    def gpu(self) -> str:
        return str(self._library.driver)

    @property
    def library(self) -> str:
        return f"cuBLASLt {self._library.version}"

    def split(self, M: int, N: int, K: int, setting: Setting) -> SplitK | str:
        found = self._library.heuristic(GemmCall(M, N, K, *setting))
        if isinstance(found, Refusal):
            return f"the library refuses the call (cublasStatus_t {found.status})"
        scheme = scheme_of(self._library.driver.capability, found)
        if scheme is None:
            return f"S = {found.splitK}, and nobody has measured how this GPU combines the parts"
        return SplitK(max(found.splitK, 1), scheme)


@functools.cache
def find_provider() -> LiveProvider | str:
    """The provider of this machine, made on first use, or why there is none."""
    try:
        return CublasLtProvider(CublasLt())
    except BackendUnavailableError as error:
        return f"no cuBLASLt can be asked here: {error}"


def live_step(query: SplitQuery) -> SplitDecision | str:
    """What the running GPU's cuBLASLt answers; only for ``splitk="live"``."""
    if query.request.mode != "live":
        return "live-query: only splitk='live' asks the running GPU"
    provider = find_provider()
    if isinstance(provider, str):
        return f"live-query: {provider}"
    return ask(query, provider)


def ask(query: SplitQuery, provider: LiveProvider) -> SplitDecision | str:
    """The decision of ``provider``, or the reason why it has none.

    Raises:
        UnsupportedFeatureError: the GPU splits in a way that the profile does not model.
    """
    profile = query.profile
    for what, running, wanted in (
        ("GPU", provider.gpu, profile.gpu),
        ("library", provider.library, profile.library),
    ):
        if running != wanted:
            return (
                f"live-query: the running {what} is {running!r}, that of profile "
                f"{profile.name!r} is {wanted!r}"
            )
    setting = query.setting
    if isinstance(setting, str):
        return f"live-query: {setting}"
    split = provider.split(*query.key, setting)
    if isinstance(split, str):
        return f"live-query: {split}"
    check_modelled(query, split.S, split.scheme, f"{profile.library} on this GPU")
    note = f"answered by {provider.library} on {provider.gpu}"
    return SplitDecision(split.S, split.scheme, "live-query", note=note)
