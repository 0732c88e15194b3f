"""What a search found: classes of members, witnesses, or a counterexample."""

import dataclasses
import json
from typing import Literal

from mmaemu_jax.identify.calls import Shape
from mmaemu_jax.identify.member import Member
from mmaemu_jax.identify.shrink import Counterexample

Verdict = Literal["identified", "undecided", "outside the family"]
_LISTED = 24


@dataclasses.dataclass(frozen=True)
class EquivalenceClass:
    """Members that no input of the allowed shapes tells apart.

    Attributes:
        members: some of them, the plainest first.
        count: how many there are.
        argued: they are the same computation by argument; else they are float64 sums of which
            these formats can hardly show the order.
    """

    members: tuple[Member, ...]
    count: int
    argued: bool


@dataclasses.dataclass(frozen=True)
class Witness:
    """Why a runner-up is excluded: one output that it gets wrong.

    Attributes:
        change: in which way the runner-up differs from the answer.
        member: the runner-up.
        example: the operands, the output bits seen and those of the runner-up.
    """

    change: str
    member: Member
    example: Counterexample


@dataclasses.dataclass(frozen=True)
class Identification:
    """The answer of :func:`identify`.

    Attributes:
        verdict: "identified", "undecided" (the budget ended first) or "outside the family".
        formats, out_dtype, shapes, operands: what was asked.
        classes: what explains every output, in classes of members equal by argument. Of several
            classes no operands that tell them apart were found, unless the verdict is "undecided".
        tried: designed dot products that were searched for such operands.
        witnesses: for members one step away from the answer, an output that excludes them.
        nearest, counterexample: of a GEMM outside the family: the closest member, and the smallest
            operands on which it fails.
        why: the verdict, if it is not "identified".
        calls: what each call was for.
        family_size: how many members were considered.
    """

    verdict: Verdict
    formats: tuple[str, str]
    out_dtype: str
    shapes: tuple[Shape, ...]
    operands: tuple[str, ...]
    classes: tuple[EquivalenceClass, ...]
    witnesses: tuple[Witness, ...]
    calls: tuple[str, ...]
    family_size: int
    tried: int = 0
    nearest: Member | None = None
    counterexample: Counterexample | None = None
    why: str = ""

    @property
    def member(self) -> Member | None:
        """The plainest member that explains everything; None outside the family."""
        return self.classes[0].members[0] if self.classes else None

    def to_json(self) -> str:
        """As JSON; :meth:`from_json` reads it."""
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> "Identification":
        """What :meth:`to_json` wrote."""
        v = json.loads(text)
        v["formats"], v["calls"], v["operands"] = map(
            tuple, (v["formats"], v["calls"], v["operands"])
        )
        v["shapes"] = tuple(tuple(s) for s in v["shapes"])
        v["classes"] = tuple(
            EquivalenceClass(tuple(map(Member.from_dict, c["members"])), c["count"], c["argued"])
            for c in v["classes"]
        )
        v["witnesses"] = tuple(
            Witness(w["change"], Member.from_dict(w["member"]), _example(w["example"]))
            for w in v["witnesses"]
        )
        v["nearest"] = Member.from_dict(v["nearest"]) if v["nearest"] else None
        v["counterexample"] = _example(v["counterexample"]) if v["counterexample"] else None
        return cls(**v)

    def __str__(self) -> str:
        formats = " x ".join(self.formats)
        shapes = ", ".join("x".join(map(str, s)) for s in self.shapes)
        lines = [
            f"{formats} -> {self.out_dtype} at {shapes}: {self.verdict}",
            f"  {len(self.calls)} calls, {self.family_size:.3g} members considered",
        ]
        if self.verdict == "outside the family":
            lines += [f"  {self.why}", f"  closest: {self.nearest}"]
            if self.counterexample:
                lines += [f"  {line}" for line in _example_lines(self.counterexample)]
            return "\n".join(lines)
        if self.why:
            lines.append(f"  {self.why}")
        for number, each in enumerate(self.classes):
            if number == _LISTED:
                lines.append(f"  and {len(self.classes) - number} classes more")
                break
            why = "equal by argument" if each.argued else "in another order, too wide to show it"
            more = f" (and {each.count - 1} {why})" if each.count > 1 else ""
            lines.append(f"  {'or ' if number else ''}{each.members[0]}{more}")
        if len(self.classes) > 1 and self.verdict == "identified":
            lines.append(f"  no operands that tell these apart were found among {self.tried}")
        lines += [f"  not {w.change}: {_short(w.example)}" for w in self.witnesses]
        return "\n".join(lines)


def _example(values: dict) -> Counterexample:
    return Counterexample(
        seen=values["seen"],
        expected=values["expected"],
        **{name: tuple(values[name]) for name in ("shape", "output", "positions", "a", "b")},
    )


def _short(example: Counterexample) -> str:
    return (
        f"{len(example.positions)} products at k = "
        f"{', '.join(map(str, example.positions[:6]))}{'...' if len(example.positions) > 6 else ''}"
        f" gave {example.seen:#x}, it says {example.expected:#x}"
    )


def _example_lines(example: Counterexample) -> list[str]:
    return [
        f"smallest counterexample, output {example.output} of shape {example.shape}:",
        *(
            f"  k = {k}: a code {a:#04x}, b code {b:#04x}"
            for k, a, b in zip(example.positions[:16], example.a, example.b, strict=False)
        ),
        f"  output bits {example.seen:#x}, closest member {example.expected:#x}",
    ]
