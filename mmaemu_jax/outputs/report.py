"""What check_outputs found: of each GEMM, and of all of them as a table."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from mmaemu_jax.formats import format_of
from mmaemu_jax.notices import Notice
from mmaemu_jax.outputs.recorded import RecordedGemm
from mmaemu_jax.platforms import SplitDecision
from mmaemu_jax.testing.bits import BitReport

_HEAD = ("call", "M x N x K", "split", "outputs", "differ", "max ulp")
_RIGHT = (False, False, False, True, True, True)
_SHORT = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}


@dataclasses.dataclass(frozen=True)
class CheckedGemm:
    """One recorded GEMM against the bits of a profile.

    Attributes:
        name: as it was recorded.
        shape: (M, N, K) of the call; None if the file could not be read.
        call: formats, output and accumulation, as text.
        decision: how the profile splits K; None where nothing was computed (R15 included).
        report: how the recorded bits compare with the profile's; None if they were not compared.
        notices: warnings that computing it deserves.
        explanations: with ``explain``, what gives the recorded bits instead, the plainest first,
            in the words of the arguments: "use_fast_accum=False", "splitk=(2, 'contiguous')".
        where: in which rows and columns the differing outputs are, or "" for everywhere.
        problem: why it was not compared, or None.
    """

    name: str
    shape: tuple[int, int, int] | None = None
    call: str = ""
    decision: SplitDecision | None = None
    report: BitReport | None = None
    notices: tuple[Notice, ...] = ()
    explanations: tuple[str, ...] = ()
    where: str = ""
    problem: str | None = None

    @property
    def equal(self) -> bool:
        """It was compared, and every bit is the profile's."""
        return self.report is not None and self.report.equal

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        d, r = self.decision, self.report
        return {
            "name": self.name,
            "shape": None if self.shape is None else list(self.shape),
            "call": self.call,
            "split": None if d is None else dataclasses.asdict(d),
            "outputs": None if r is None else r.size,
            "differing": None if r is None else r.differing,
            "kinds": None if r is None else r.kinds,
            "max_ulps": None if r is None else r.max_ulps,
            "warnings": [{"category": n.category.__name__, "text": n.text} for n in self.notices],
            "explanations": list(self.explanations),
            "where": self.where,
            "problem": self.problem,
        }


@dataclasses.dataclass(frozen=True)
class OutputsReport:
    """All of them; ``str()`` is the table that ``python -m mmaemu_jax check`` prints.

    Attributes:
        profile: name of the profile.
        explained: explanations were asked for.
        gemms: in the order in which they were given.
    """

    profile: str
    explained: bool
    gemms: tuple[CheckedGemm, ...]

    @property
    def equal(self) -> bool:
        """Every GEMM was compared and has the profile's bits."""
        return all(gemm.equal for gemm in self.gemms)

    @property
    def differing(self) -> tuple[CheckedGemm, ...]:
        """Those that were compared and differ."""
        return tuple(g for g in self.gemms if g.report is not None and not g.report.equal)

    @property
    def problems(self) -> tuple[CheckedGemm, ...]:
        """Those that could not be compared."""
        return tuple(gemm for gemm in self.gemms if gemm.problem is not None)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready values."""
        return {
            "profile": self.profile,
            "equal": self.equal,
            "gemms": [gemm.to_dict() for gemm in self.gemms],
        }

    def summary(self) -> str:
        """The last lines of the table: how many agree, and what to know about the others."""
        agree = sum(gemm.equal for gemm in self.gemms)
        lines = [
            f"{agree} of {len(self.gemms)} GEMMs have the bits of profile {self.profile!r}; "
            f"{len(self.differing)} differ, {len(self.problems)} could not be compared."
        ]
        lines += self._notices()
        if self.differing and not self.explained:
            lines.append("--explain (explain=True) looks for what explains the differences.")
        return "\n".join(lines)

    def _notices(self) -> list[str]:
        """Of each kind of warning the first, and how many GEMMs have one."""
        texts: dict[type, list[str]] = {}
        for gemm in self.gemms:
            for category in {notice.category for notice in gemm.notices}:
                own = next(n.text for n in gemm.notices if n.category is category)
                texts.setdefault(category, []).append(own)
        return [
            f"{category.__name__} ({len(own)} GEMMs): {own[0]}" for category, own in texts.items()
        ]

    def __str__(self) -> str:
        table = Table(gemm.name for gemm in self.gemms)
        rows = [table.row(gemm, self.explained) for gemm in self.gemms]
        return "\n".join([table.head(), *rows, "", self.summary()])


class Table:
    """Lines of fixed columns, so that each can be printed when its GEMM is done."""

    def __init__(self, names: Iterable[str]):
        self._widths = (max([4, *map(len, names)]), 26, 18, 20, 9, 9, 7)

    def head(self) -> str:
        """The first line."""
        return self._line(("name", *_HEAD))

    def row(self, gemm: CheckedGemm, explained: bool) -> str:
        """One GEMM: its numbers, and below them what explains them, or why there are none."""
        report = gemm.report
        if report is None:
            name = f"{gemm.name:<{self._widths[0]}}"
            return f"{name}  not compared: {gemm.problem}"
        shape = " x ".join(map(str, gemm.shape or ()))
        numbers = (str(report.size), str(report.differing), str(report.max_ulps))
        line = self._line((gemm.name, gemm.call, shape, _split(gemm.decision), *numbers))
        if report.equal or not explained:
            return line
        return "\n".join([line, *(f"    {words}" for words in _reasons(gemm))])

    def _line(self, cells: tuple[str, ...]) -> str:
        parts = [
            f"{cell:>{width}}" if right else f"{cell:<{width}}"
            for cell, width, right in zip(cells, self._widths, (False, *_RIGHT), strict=True)
        ]
        return "  ".join(parts).rstrip()


def _split(decision: SplitDecision | None) -> str:
    if decision is None:
        return "nothing to multiply"
    scheme = "" if decision.S == 1 else f" {decision.scheme}"
    return f"S={decision.S}{scheme}, {decision.source}"


def _reasons(gemm: CheckedGemm) -> list[str]:
    if gemm.explanations:
        first, *others = gemm.explanations
        also = f" (so does {'; '.join(others)})" if others else ""
        return [f"explained by {first}{also}"]
    where = f" ({gemm.where})" if gemm.where else ""
    return [f"no single change of the arithmetic explains every bit{where}"]


def call_text(gemm: RecordedGemm) -> str:
    """Formats, output, accumulation and bias in a few characters."""
    a, b = (fmt.name for fmt in map(format_of, (gemm.a.dtype, gemm.b.dtype)) if fmt is not None)
    to_fp8 = format_of(gemm.out.dtype)
    out = _SHORT[gemm.out.dtype.name] if to_fp8 is None else to_fp8.name
    mode = "fast" if gemm.use_fast_accum else "slow"
    return f"{a}x{b}->{out} {mode}" + (" +bias" if gemm.bias is not None else "")
