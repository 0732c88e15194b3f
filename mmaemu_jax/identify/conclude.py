"""From what a search left to an :class:`Identification`: classes, witnesses, counterexample."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from mmaemu_jax.identify.calls import BlackBox, Call, Interface, Shape
from mmaemu_jax.identify.check import compared, differs, member_bits, mismatches
from mmaemu_jax.identify.equivalence import canonical, is_argued
from mmaemu_jax.identify.family import BLOCKS, LANES, RESTARTS, Family
from mmaemu_jax.identify.member import Member
from mmaemu_jax.identify.parts import WHOLE, Parts
from mmaemu_jax.identify.plan import Plan
from mmaemu_jax.identify.questions import Layout
from mmaemu_jax.identify.report import EquivalenceClass, Identification, Witness
from mmaemu_jax.identify.shrink import Counterexample, of_output, smallest

_LISTED = 24
_ROWS = 24


def classify(
    box: BlackBox, shapes: Sequence[Shape], members: list[Member], aliases: dict[Plan, list[Plan]]
) -> list[EquivalenceClass]:
    """``members``, and those that differ from them by an alias of the plan, in classes."""
    classes: dict = {}
    for member in members:
        key = canonical(member, box.interface, shapes)
        classes.setdefault(key, []).append(member)
    plainest = {plan: min(plans, key=_levels) for plan, plans in aliases.items()}
    built = []
    for same in classes.values():
        count = sum(len(aliases.get(member.plan, [member.plan])) for member in same)
        some = [
            dataclasses.replace(member, plan=plainest.get(member.plan, member.plan))
            for member in same
        ]
        if len(some) < _LISTED:  # then other plans of the first as well
            plans = aliases.get(same[0].plan, [])[:_LISTED]
            some += [dataclasses.replace(same[0], plan=plan) for plan in plans]
        some.sort(key=_plainness)
        listed = tuple(dict.fromkeys(some))[:_LISTED]
        argued = count == 1 or is_argued(listed[0], box.interface, shapes)
        built.append(EquivalenceClass(listed, count, argued))
    return sorted(built, key=lambda c: _plainness(c.members[0]))


def found(
    box: BlackBox,
    family: Family,
    shapes: Sequence[Shape],
    classes: list[EquivalenceClass],
    separable: bool,
    tried: int,
) -> Identification:
    """The identification of what explains everything."""
    keys = {canonical(c.members[0], box.interface, shapes) for c in classes}
    runners_up = [
        (change, other)
        for change, other in neighbours(classes[0].members[0], family)
        if canonical(other, box.interface, shapes) not in keys
    ]
    open_ = separable and len(classes) > 1
    return _identification(
        box, family, shapes, "undecided" if open_ else "identified",
        classes=tuple(classes), witnesses=_witnesses(box, runners_up), tried=tried,
        why=f"the calls ended first: {_asks(shapes)}" if open_ else "",
    )  # fmt: skip


def _asks(shapes: Sequence[Shape]) -> str:
    return f"each asks {max(Layout.of(s).count for s in shapes)} questions at most; allow more"


def undecided(box: BlackBox, family: Family, shapes: Sequence[Shape], trees: int) -> Identification:
    """Too few questions could be asked to tell the trees apart."""
    why = f"{trees} orders of additions are left by these calls: {_asks(shapes)}"
    return _identification(box, family, shapes, "undecided", why=why)


def outside(
    box: BlackBox, family: Family, shapes: Sequence[Shape], why: str, nearest: Member | None
) -> Identification:
    """Nothing explains everything; ``nearest`` explains most."""
    example = None if nearest is None else smallest(box, nearest)
    return _identification(
        box, family, shapes, "outside the family", why=why, nearest=nearest, counterexample=example
    )


def _identification(box, family, shapes, verdict, classes=(), witnesses=(), **fields):
    return Identification(
        verdict=verdict,
        formats=(box.formats[0].name, box.formats[1].name),
        out_dtype=box.out_dtype.name,
        shapes=tuple(shapes),
        operands=box.operands,
        classes=classes,
        witnesses=witnesses,
        calls=tuple(call.purpose for call in box.calls),
        family_size=family.size,
        **fields,
    )


def _levels(plan: Plan) -> tuple[int, str]:
    """Fewer levels first, residues last rather than first, c early rather than late."""
    levels = sum(not level.is_whole for level in plan.levels)
    return 2 * levels + (plan.restart.residue == "first") + plan.late + plan.swapped, repr(plan)


def _plainness(member: Member) -> tuple[int, str]:
    """Plainer plans and fewer departures from the defaults first."""
    default = Member(member.plan)
    changes = sum(
        getattr(x, f.name) != getattr(y, f.name)
        for x, y in (
            (member.arithmetic, default.arithmetic),
            (member.epilogue, default.epilogue),
        )
        for f in dataclasses.fields(x)
        if f.name not in ("frac", "frac_out")
    )
    return _levels(member.plan)[0] + changes, str(member)


# ------------------------------------------------------------------------------------- witnesses


def _witnesses(box: BlackBox, runners_up) -> tuple[Witness, ...]:
    """One output against each of them."""
    found = []
    for change, other in runners_up:
        example = _against(box, other)
        if example is not None:
            found.append(Witness(change, other, example))
    return tuple(found)


def neighbours(member: Member, family: Family):
    """(what changes, member) for single changes that stay in the family."""
    plan = member.plan
    options = {"restart": [*RESTARTS], "split": _near_splits(plan.split)}
    if plan.block == 1:
        options |= {"lanes": [*LANES], "swapped": [not plan.swapped]}
    for name, values in options.items():
        for value in values:
            other = dataclasses.replace(plan, **{name: value})
            yield _described(member, dataclasses.replace(member, plan=other))
    if plan.block != 1:
        for block, late in BLOCKS:
            if (block == plan.block) != (late == plan.late):
                other = dataclasses.replace(plan, block=block, late=late)
                yield _described(member, dataclasses.replace(member, plan=other))
    for part, options in (("arithmetic", family.steps(plan)), ("epilogue", family.epilogues)):
        own = getattr(member, part)
        for value in options:
            changed = [
                f.name
                for f in dataclasses.fields(own)
                if getattr(own, f.name) != getattr(value, f.name)
            ]
            if len(changed) == 1:
                yield _described(member, dataclasses.replace(member, **{part: value}))


def _near_splits(split: Parts) -> list[Parts]:
    if split.is_whole:
        return [Parts(2, 64, True), Parts(2, 128), Parts(2, 32)]
    near = [WHOLE] + [
        dataclasses.replace(split, count=split.count + d) for d in (-1, 1) if split.count + d > 1
    ]
    layouts = [(64, True), (128, False), (32, False)]
    near += [
        dataclasses.replace(split, tile=t, interleaved=i, combine=c)
        for t, i in layouts
        for c in ("serial", "pairwise", "halves")
    ]
    return [s for s in near if s != split]


def _described(member: Member, other: Member) -> tuple[str, Member]:
    own, theirs = member.words(), other.words()
    gained = ", ".join(w for w in theirs if w not in own)
    return gained or "without " + ", ".join(w for w in own if w not in theirs), other


def _against(box: BlackBox, other: Member) -> Counterexample | None:
    """An output that ``other`` gets wrong, looked for among few rows first."""
    for call in box.calls:
        rows, columns = call.asked
        for start in range(0, call.questions, _ROWS):
            some = slice(start, start + _ROWS)
            bits = member_bits(other, box.interface, call, rows[some], columns[some], paired=True)
            wrong = np.flatnonzero(differs(bits, call.answers[some], other, box.out_dtype))
            if len(wrong):
                t = start + int(wrong[0])
                return of_output(box.interface, other, call, int(rows[t]), int(columns[t]))
    for call in box.calls:
        if not call.questions and (example := _in_rows(box.interface, other, call)) is not None:
            return example
    return None


def _in_rows(interface: Interface, other: Member, call: Call) -> Counterexample | None:
    rows, columns = (x[:_ROWS] for x in compared(call))
    bits = member_bits(other, interface, call, rows, columns).reshape(len(rows), -1)
    seen = call.bits[np.ix_(rows, columns)]
    wrong = np.argwhere(differs(bits, seen, other, interface.out_dtype))
    if len(wrong):
        return of_output(interface, other, call, *map(int, wrong[0]))
    wrong = mismatches(other, interface, call)
    return of_output(interface, other, call, *map(int, wrong[0])) if len(wrong) else None
