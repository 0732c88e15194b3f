"""What the split-K resolvers ask and answer."""

import dataclasses
from typing import Literal

import numpy as np

from mmaemu_jax.formats import Fp8Format
from mmaemu_jax.platforms.profile import Profile
from mmaemu_jax.platforms.split_request import SplitRequest

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

    A symbolic dimension of jax.export is not an int.
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

    @property
    def is_empty(self) -> bool:
        """A dimension is zero (R15); symbolic dimensions count as nonzero."""
        return any(dim == 0 for dim in (self.M, self.N, self.K))

    @property
    def is_symbolic(self) -> bool:
        """A dimension is symbolic."""
        return not all(isinstance(dim, int) for dim in (self.M, self.N, self.K))

    def __str__(self) -> str:
        mode = "fast" if self.use_fast_accum else "slow"
        return (
            f"M={self.M} N={self.N} K={self.K} {self.format_a.name} x {self.format_b.name} -> "
            f"{self.out_dtype.name}, {mode} accumulation, profile {self.profile.name!r} "
            f"(workspace {self.profile.workspace_bytes} bytes)"
        )
