"""Envelopes: where a table lets infer, for a shape it does not hold, that K is not split.

An envelope gives a setting's bound on M * N; above the bound S = 1 is inferred. Which kind a table
has, and every number in it, is data of the table.
"""

import bisect
import dataclasses
from collections.abc import Mapping

from mmaemu_jax.platforms.split_setting import Setting, SettingFacts


@dataclasses.dataclass(frozen=True)
class Bound:
    """S = 1 is inferred where M * N > ``MN``.

    Attributes:
        MN: the bound.
        origin: where it comes from, for messages.
        caveat: why inferences from it are unvalidated, or None.
    """

    MN: int
    origin: str
    caveat: str | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class MaxSplitEnvelope:
    """The bound is ``margin`` times the largest M * N that split in the setting, whatever K.

    A setting without rows takes the largest over all output dtypes of the same formats,
    accumulation and workspace.
    """

    margin: int
    facts: Mapping[Setting, SettingFacts]

    def bound(self, setting: Setting, K: int) -> Bound | str:
        """The bound for ``setting``, or the reason why there is none; ``K`` does not matter."""
        rows, where = self._evidence(setting)
        if not rows:
            return f"the table has no rows of the setting ({setting}), with any output dtype"
        largest = max((f.max_split_MN for f in rows if f.max_split_MN is not None), default=None)
        if largest is None:
            return Bound(0, f"none of the {sum(f.rows for f in rows)} rows of {where} splits")
        return Bound(
            self.margin * largest, f"{self.margin} times the largest M*N that splits in {where}"
        )

    def _evidence(self, setting: Setting) -> tuple[list[SettingFacts], str]:
        if setting in self.facts:
            return [self.facts[setting]], "the setting"
        alike = [
            facts
            for other, facts in self.facts.items()
            if other._replace(out_dtype=setting.out_dtype) == setting
        ]
        return alike, "the setting with any other output dtype"


@dataclasses.dataclass(frozen=True)
class HeldOutTest:
    """How an envelope did on shapes it was not made from, at one workspace."""

    status: str
    tested: int
    split: int


@dataclasses.dataclass(frozen=True, eq=False)
class KGridEnvelope:
    """The bound depends on the setting and on K, rounded up to the next value of a grid.

    Attributes:
        K_min, K_max: nothing is inferred for another K.
        K_grid: ascending, up to at least ``K_max``.
        bounds: of each setting that has any, one for each K of the grid.
        tests: by workspace; inferences at a workspace without a passed test are unvalidated.
    """

    K_min: int
    K_max: int
    K_grid: tuple[int, ...]
    bounds: Mapping[Setting, tuple[int, ...]]
    tests: Mapping[int, HeldOutTest]

    def bound(self, setting: Setting, K: int) -> Bound | str:
        """The bound for ``setting`` at ``K``, or the reason why there is none."""
        if not self.K_min <= K <= self.K_max:
            return f"nothing is inferred for K = {K}, only for {self.K_min}..{self.K_max}"
        if setting not in self.bounds:
            return f"the table has no bound for the setting ({setting})"
        position = bisect.bisect_left(self.K_grid, K)
        return Bound(
            self.bounds[setting][position],
            f"that of the setting at K = {self.K_grid[position]}",
            self._caveat(setting.workspace_bytes),
        )

    def _caveat(self, workspace_bytes: int) -> str | None:
        test = self.tests.get(workspace_bytes)
        if test is None:
            return f"the envelope was never tested with a workspace of {workspace_bytes} bytes"
        if test.status == "validated":
            return None
        return (
            f"with a workspace of {workspace_bytes} bytes {test.split} of {test.tested} shapes "
            f"that the envelope was tested on were split"
        )


Envelope = MaxSplitEnvelope | KGridEnvelope


@dataclasses.dataclass(frozen=True)
class Inference:
    """S = 1, inferred.

    Attributes:
        note: from which bound.
        caveat: why it is unvalidated, or None.
    """

    note: str
    caveat: str | None


def infer_unsplit(envelope: Envelope, setting: Setting, M: int, N: int, K: int) -> Inference | str:
    """That a GEMM with nonzero M, N, K is not split, or why that cannot be inferred."""
    bound = envelope.bound(setting, K)
    if isinstance(bound, str):
        return bound
    where = f"the bound {bound.MN} of the setting ({setting}): {bound.origin}"
    if M * N <= bound.MN:
        return f"M*N = {M * N} is not above {where}"
    return Inference(f"inferred, M*N = {M * N} is above {where}", bound.caveat)
