"""What the split-K resolvers ask and answer."""

import dataclasses
from typing import Literal

import numpy as np

from mmaemu_jax.errors import UnsupportedFeatureError, message
from mmaemu_jax.formats import Fp8Format
from mmaemu_jax.platforms.profile import Profile
from mmaemu_jax.platforms.split_request import SplitRequest
from mmaemu_jax.platforms.split_setting import Setting

Source = Literal["explicit", "workspace0", "table", "live-query", "envelope", "assumed"]


@dataclasses.dataclass(frozen=True)
class SplitDecision:
    """How a GEMM is split.

    Attributes:
        S: number of splits.
        scheme: how the parts are combined (R12, R13); "none" when S == 1.
        source: where the decision comes from.
        verified: nothing about it is without evidence (else it warns).
        table_id: the table it was found in or inferred from, or None.
        note: one sentence for people.
    """

    S: int
    scheme: str
    source: Source
    verified: bool = True
    table_id: str | None = None
    note: str = ""


@dataclasses.dataclass(frozen=True)
class SplitQuery:
    """One GEMM as the resolvers see it; ``function`` is the caller that messages name.

    A symbolic dimension of jax.export is not an int. ``to_scaled_fp8`` says that the output is
    FP8 and has a scale_result (R18).
    """

    function: str
    M: int
    N: int
    K: int
    format_a: Fp8Format
    format_b: Fp8Format
    out_dtype: np.dtype
    use_fast_accum: bool
    profile: Profile
    request: SplitRequest
    to_scaled_fp8: bool = False

    @property
    def is_empty(self) -> bool:
        """A dimension is zero (R15); symbolic dimensions count as nonzero."""
        return any(dim == 0 for dim in (self.M, self.N, self.K))

    @property
    def is_symbolic(self) -> bool:
        """A dimension is symbolic."""
        return not all(isinstance(dim, int) for dim in (self.M, self.N, self.K))

    @property
    def key(self) -> tuple[int, int, int]:
        """The (M, N, K) that the library sees: what the profile's caller pads them to."""
        step = self.profile.pad_key_to
        return -(-self.M // step) * step, -(-self.N // step) * step, -(-self.K // step) * step

    @property
    def setting(self) -> Setting | str:
        """What else a library's decision depends on, or why nothing can be looked up for it."""
        if self.profile.workspace_bytes is None:
            return f"the workspace of profile {self.profile.name!r} is unknown"
        if self.is_symbolic:
            return "a dimension is symbolic"
        return Setting(
            self.format_a.name,
            self.format_b.name,
            self.out_dtype.name,
            self.use_fast_accum,
            self.profile.workspace_bytes,
        )

    def __str__(self) -> str:
        mode = "fast" if self.use_fast_accum else "slow"
        return (
            f"M={self.M} N={self.N} K={self.K} {self.format_a.name} x {self.format_b.name} -> "
            f"{self.out_dtype.name}, {mode} accumulation, profile {self.profile.name!r} "
            f"(workspace {self.profile.workspace_bytes} bytes)"
        )


def check_modelled(query: SplitQuery, S: int, scheme: str, who: str) -> None:
    """Refuses a split that ``who`` reports and the profile has no rule for.

    Raises:
        UnsupportedFeatureError: S > 1 with a scheme that is not the profile's.
    """
    profile = query.profile
    rule = profile.split_rule if profile.splits else None
    if S == 1 or (rule is not None and scheme in rule.schemes):
        return
    raise UnsupportedFeatureError(
        message(
            f"{query.function}: {who} says that the GPU splits {query} into S = {S} parts, scheme "
            f"{scheme!r}, which profile {profile.name!r} does not model.",
            ["give the profile the split_rule of its GPU", "pass splitk=1 for the unsplit bits"],
        )
    )
