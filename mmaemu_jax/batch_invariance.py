"""Which M change the bits of a row: a row depends on the other rows only through the split of K."""

import dataclasses
import itertools
import os
from collections.abc import Iterable
from typing import Any

from mmaemu_jax.arguments import flag_argument, format_argument, output_dtype_argument
from mmaemu_jax.errors import SplitKUnknownError, message
from mmaemu_jax.platforms import (
    Profile,
    SplitArgument,
    SplitDecision,
    SplitQuery,
    parse_splitk,
    profile_argument,
    resolve,
)
from mmaemu_jax.platforms.split_resolver import dimension_argument

UNKNOWN = "unknown"


@dataclasses.dataclass(frozen=True)
class MRun:
    """Neighbouring M of a sweep that are split alike.

    Attributes:
        first, last: its smallest and largest M.
        count: how many M of the sweep it has.
        S, scheme: the split; None and "" where it is unknown.
        source: of the decision, or "unknown".
        verified: every decision of the run is.
    """

    first: int
    last: int
    count: int
    S: int | None
    scheme: str
    source: str
    verified: bool

    @property
    def split(self) -> str:
        """The split for people."""
        return UNKNOWN if self.S is None else f"S = {self.S} ({self.scheme})"


@dataclasses.dataclass(frozen=True)
class BatchInvarianceReport:
    """The runs of a sweep over M; ``str()`` of it is a table.

    Attributes:
        N, K, a_dtype, b_dtype, out_dtype, use_fast_accum, profile: of every GEMM of the sweep.
        runs: from the smallest M to the largest.
    """

    N: int
    K: int
    a_dtype: str
    b_dtype: str
    out_dtype: str
    use_fast_accum: bool
    profile: str
    runs: tuple[MRun, ...]

    @property
    def splits(self) -> tuple[MRun, ...]:
        """The runs, where neighbours that differ only in their source are one."""
        groups = itertools.groupby(self.runs, lambda run: (run.S, run.scheme))
        return tuple(_joined(list(group)) for _, group in groups)

    @property
    def is_invariant(self) -> bool:
        """Every M is known to be split alike: a row's bits do not depend on M."""
        splits = {(run.S, run.scheme) for run in self.runs}
        return len(splits) <= 1 and not self.unknown

    @property
    def unknown(self) -> int:
        """How many M have no known split."""
        return sum(run.count for run in self.runs if run.S is None)

    def run_of(self, M: int) -> MRun | None:
        """The run whose bounds hold ``M``."""
        return next((run for run in self.runs if run.first <= M <= run.last), None)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready values."""
        derived = {"is_invariant": self.is_invariant, "unknown": self.unknown}
        return {**dataclasses.asdict(self), **derived}

    def plot(self, path: str | os.PathLike | None = None) -> Any:
        """S against M, a colour for each way of combining the parts; grey where it is unknown.

        Args:
            path: where to save it (PNG, SVG or PDF, by the name); None saves nothing.

        Returns:
            The ``matplotlib.figure.Figure``.

        Raises:
            ModuleNotFoundError: matplotlib is not installed.
        """
        from mmaemu_jax.batch_invariance_plot import plot  # only a plot needs it

        return plot(self, path)

    @property
    def head(self) -> str:
        """The GEMM in a line, as a title."""
        mode = "fast" if self.use_fast_accum else "slow"
        return (
            f"N={self.N} K={self.K} {self.a_dtype} x {self.b_dtype} -> {self.out_dtype}, {mode} "
            f"accumulation, profile {self.profile!r}"
        )

    def __str__(self) -> str:
        runs = self.splits
        spans = [str(r.first) if r.count == 1 else f"{r.first}..{r.last}" for r in runs]
        width = max(map(len, [*spans, "M"]))
        lines = [self.head, f"{'M':<{width}}  {'count':>6}  {'split':<22} source"]
        for span, run in zip(spans, runs, strict=True):
            mark = "" if run.verified or run.S is None else " (not verified)"
            lines.append(f"{span:<{width}}  {run.count:>6}  {run.split:<22} {run.source}{mark}")
        return "\n".join([*lines, self._verdict()])

    def _verdict(self) -> str:
        if self.is_invariant:
            return "Batch-invariant: a row has the same bits for each of these M."
        known = {(r.S, r.scheme) for r in self.runs if r.S is not None}
        verdict = f"NOT batch-invariant: {len(known)} different splits."
        if len(known) <= 1:
            verdict = "Not known to be batch-invariant."
        return verdict + (f" {self.unknown} M have no known split." if self.unknown else "")


def batch_invariance(
    N: int,
    K: int,
    *,
    M: Iterable[int] = range(1, 4097),
    a_dtype,
    b_dtype,
    out_dtype,
    use_fast_accum: bool,
    profile: str | Profile | None = None,
    splitk: SplitArgument = "auto",
) -> BatchInvarianceReport:
    """Which M change how [M, K] x [K, N] is split on the profile, hence the bits of a row.

    Args:
        N, K: the other dimensions.
        M: the sweep, in any order; neighbours of equal split and source become one run.
        a_dtype, b_dtype, out_dtype, use_fast_accum, profile, splitk: as in
            :func:`resolve_splitk`.

    Returns:
        The runs. It never warns; an unknown split is listed as such.

    Raises:
        TypeError, ValueError: an argument of the wrong type or value.
        UnsupportedFeatureError: S > 1 where split-K was never characterised.
    """
    function = "batch_invariance"
    platform = profile_argument(function, profile)
    format_a = format_argument(function, "a_dtype", a_dtype)
    query = SplitQuery(
        function,
        0,
        dimension_argument(function, "N", N),
        dimension_argument(function, "K", K),
        format_a,
        format_argument(function, "b_dtype", b_dtype),
        output_dtype_argument(
            function, "out_dtype", format_a.dtype if out_dtype is None else out_dtype
        ),
        flag_argument(function, "use_fast_accum", use_fast_accum),
        platform,
        parse_splitk(function, splitk, platform),
    )
    sweep = _sweep(function, M)
    decided = [(m, _decision(dataclasses.replace(query, M=m))) for m in sweep]
    runs = [_run(list(group)) for _, group in itertools.groupby(decided, lambda d: _kind(d[1]))]
    return BatchInvarianceReport(
        query.N,
        query.K,
        query.format_a.name,
        query.format_b.name,
        query.out_dtype.name,
        query.use_fast_accum,
        platform.name,
        tuple(runs),
    )


def _sweep(function: str, M) -> list[int]:
    """The distinct M, ascending: one run then ends where the next begins."""
    try:
        dimensions = {dimension_argument(function, "M", m) for m in list(M)}
    except TypeError as error:
        what = f"{function}: M must be several ints, got {M!r}."
        raise TypeError(message(what, ["pass for example M=range(1, 4097)"])) from error
    if not all(isinstance(m, int) for m in dimensions):
        raise TypeError(message(f"{function}: M must not be symbolic, got {M!r}.", ["pass ints"]))
    return sorted(dimensions)


def _decision(query: SplitQuery) -> SplitDecision | None:
    try:
        return resolve(query).decision
    except SplitKUnknownError:
        return None


def _kind(decision: SplitDecision | None) -> tuple[int | None, str, str]:
    if decision is None:
        return None, "", UNKNOWN
    return decision.S, decision.scheme, decision.source


def _joined(runs: list[MRun]) -> MRun:
    return dataclasses.replace(
        runs[0],
        last=runs[-1].last,
        count=sum(run.count for run in runs),
        source=" and ".join(dict.fromkeys(run.source for run in runs)),
        verified=all(run.verified for run in runs),
    )


def _run(members: list[tuple[int, SplitDecision | None]]) -> MRun:
    decisions = [decision for _, decision in members]
    verified = all(d is not None and d.verified for d in decisions)
    S, scheme, source = _kind(decisions[0])
    return MRun(members[0][0], members[-1][0], len(members), S, scheme, source, verified)
