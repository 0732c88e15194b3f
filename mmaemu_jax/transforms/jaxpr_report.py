"""The report of explain_jaxpr: one site per FP8 GEMM, as data, as a table, as JSON."""

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

from mmaemu_jax.accumulate import AccumulationPlan
from mmaemu_jax.platforms import SplitDecision
from mmaemu_jax.transforms.source_location import SourceLocation, where

Kind = Literal["mmaemu", "dot_general"]
AccumulateMode = Literal["fast", "slow", "unknown"]


@dataclasses.dataclass(frozen=True)
class GemmSite:
    """One FP8 GEMM of a program: ``batch`` products of [M, K] by [K, N], each run ``times`` times.

    Symbolic dimensions of jax.export stay symbolic.

    Attributes:
        location, scope: where it is in the source, and in which named scopes, jits and loops.
        kind: "mmaemu" (this package's primitive) or "dot_general" (JAX's own, on FP8 operands).
        M, N, K, batch: vmap adds to the batch; inside shard_map they are one device's.
        format_a, format_b: "e4m3", "e5m2", or the name of a dtype that is neither.
        out_dtype: name of the result's dtype.
        accumulate: "fast" (R10) or "slow" (R11); "unknown" for a dot_general whose algorithm is
            not one of FP8.
        model: the instruction model: a preset's name, or "custom".
        split: the split decision, or None where ``reason`` says why there is none. That of a
            "mmaemu" site is part of the program, so its source is "explicit".
        plan: the accumulation plan (chunk, splits, tiles) that follows, or None.
        reason: why the decision is unknown, else "".
        times: executions per call, over all devices of a shard_map; a loop of unknown length
            counts once, and a branch as if it were taken.
        loops: the primitives of unknown length around it, such as ("while",).
        conditional: it lies in a branch, which may not be taken.
    """

    location: SourceLocation
    scope: str
    kind: Kind
    M: int
    N: int
    K: int
    batch: int
    format_a: str
    format_b: str
    out_dtype: str
    accumulate: AccumulateMode
    model: str
    split: SplitDecision | None
    plan: AccumulationPlan | None
    reason: str
    times: int
    loops: tuple[str, ...]
    conditional: bool

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of all ``times`` executions."""
        return self.times * self.batch * self.M * self.N * self.K

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; symbolic dimensions become strings."""
        fields = dataclasses.asdict(self)
        for name in ("M", "N", "K", "batch", "times"):
            fields[name] = _plain(fields[name])
        return {**fields, "loops": list(self.loops), "multiply_adds": _plain(self.multiply_adds)}


@dataclasses.dataclass(frozen=True)
class JaxprReport:
    """Every FP8 GEMM of a function, in program order; iterable, and a table as a string.

    Attributes:
        function: name of the explained function.
        profile: name of the profile under which the dot_general sites were resolved.
        splitk: the split-K argument of that resolution, as text.
        sites: the GEMMs.
    """

    function: str
    profile: str
    splitk: str
    sites: tuple[GemmSite, ...]

    def __iter__(self) -> Iterator[GemmSite]:
        return iter(self.sites)

    def __len__(self) -> int:
        return len(self.sites)

    @property
    def multiply_adds(self) -> int:
        """Per call, of the sites that always run a known number of times."""
        return sum(s.multiply_adds for s in self.sites if not s.conditional and not s.loops)

    @property
    def conditional_multiply_adds(self) -> int:
        """What branches can add per call at most."""
        return sum(s.multiply_adds for s in self.sites if s.conditional and not s.loops)

    @property
    def loop_multiply_adds(self) -> int:
        """What one iteration of every loop of unknown length adds at most."""
        return sum(s.multiply_adds for s in self.sites if s.loops)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "function": self.function,
            "profile": self.profile,
            "splitk": self.splitk,
            "gemms": len(self),
            "multiply_adds": _plain(self.multiply_adds),
            "conditional_multiply_adds": _plain(self.conditional_multiply_adds),
            "loop_multiply_adds": _plain(self.loop_multiply_adds),
            "sites": [site.to_dict() for site in self.sites],
        }

    def __str__(self) -> str:
        if not self.sites:
            return f"{self.function}: no FP8 GEMM."
        reasons = list(dict.fromkeys(site.reason for site in self.sites if site.reason))
        head = f"{self.function}, splits of dot_general by profile {self.profile!r}, "
        return "\n".join(
            [
                f"{head}splitk={self.splitk}:",
                *_aligned([_HEADER, *(_row(site, reasons) for site in self.sites)]),
                self._totals(),
                *_footnotes(reasons),
            ]
        )

    def _totals(self) -> str:
        count = f"{len(self)} FP8 GEMM{'s' if len(self) > 1 else ''}"
        parts = [f"{count}, {_number(self.multiply_adds)} multiply-adds per call"]
        if any(site.conditional and not site.loops for site in self.sites):
            parts.append(f"at most {_number(self.conditional_multiply_adds)} more in branches")
        if any(site.loops for site in self.sites):
            more = _number(self.loop_multiply_adds)
            parts.append(f"at most {more} more per iteration of loops of unknown length")
        return "; ".join(parts) + "."


_HEADER = (
    "where", "scope", "kind", "M", "N", "K", "batch", "formats", "accumulate", "model", "split",
    "times",
)  # fmt: skip
_NUMERIC = frozenset({"M", "N", "K", "batch"})


def _row(site: GemmSite, reasons: list[str]) -> tuple[str, ...]:
    return (
        where(site.location),
        site.scope or "-",
        site.kind,
        *(_number(dim) for dim in (site.M, site.N, site.K, site.batch)),
        f"{site.format_a} x {site.format_b} -> {site.out_dtype}",
        _mode(site),
        site.model,
        _split(site, reasons),
        _times(site),
    )


def _footnotes(reasons: list[str]) -> list[str]:
    """The numbered reasons, then each different list of ways out once."""
    parts = [reason.partition(" Ways out: ") for reason in reasons]
    ways_out = dict.fromkeys(f"Ways out: {ways}" for _, _, ways in parts if ways)
    return [*(f"[{i}] {what}" for i, (what, _, _) in enumerate(parts, 1)), *ways_out]


def _mode(site: GemmSite) -> str:
    chunk = site.plan.chunk_k if site.plan is not None else 0
    return f"{site.accumulate}, chunk {chunk}" if chunk else site.accumulate


def _split(site: GemmSite, reasons: list[str]) -> str:
    if site.split is None:
        return f"unknown [{reasons.index(site.reason) + 1}]"
    scheme = f" {site.split.scheme}" if site.split.S > 1 else ""
    unverified = "" if site.split.verified else ", unverified"
    return f"S={site.split.S}{scheme} ({site.split.source}{unverified})"


def _times(site: GemmSite) -> str:
    """``12``, ``loop``, ``12 x loop``, ``conditional``, ``12, conditional``."""
    loops = ["loop" if name == "while" else name for name in site.loops]
    known = isinstance(site.times, int) and site.times == 1
    factors = loops if known and loops else [_number(site.times), *loops]
    if not site.conditional:
        return " x ".join(factors)
    return "conditional" if known and not loops else f"{' x '.join(factors)}, conditional"


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADER))]
    lines = []
    for row in rows:
        cells = zip(_HEADER, row, widths, strict=True)
        padded = [c.rjust(w) if name in _NUMERIC else c.ljust(w) for name, c, w in cells]
        lines.append("  ".join(padded).rstrip())
    return lines


def _plain(value) -> int | str:
    return value if isinstance(value, int) else str(value)


def _number(value) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
