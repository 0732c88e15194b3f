"""Second question: which bits does each step keep? Asked by random products that cancel."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from mmaemu_jax.identify.calls import BlackBox, Call, Interface, Shape
from mmaemu_jax.identify.evaluate import Operands, accumulators
from mmaemu_jax.identify.full import dense
from mmaemu_jax.identify.member import Arithmetic, Epilogue, Member
from mmaemu_jax.identify.output import Extras, output_bits
from mmaemu_jax.identify.plan import Plan
from mmaemu_jax.identify.probes import Sparse
from mmaemu_jax.identify.questions import Layout
from mmaemu_jax.identify.shared_probes import draw_probes
from mmaemu_jax.identify.step_probes import cells_of

POOL = 384
#: Rows by which most hypotheses fall, before the others are looked at.
_FIRST_ROWS = 12
_MAX_COMPARED = 240
#: Full rows that are tried where no designed probe separates.
_FULL_ROWS = 60


def by_kind(steps: Iterable[Arithmetic]) -> list[list[Arithmetic]]:
    """Steps that differ in frac and frac_out alone, together: they are evaluated at once."""

    def kind(step):
        return dataclasses.replace(step, frac=0, frac_out=0)

    groups: dict[Arithmetic, list[Arithmetic]] = {}
    for step in steps:
        groups.setdefault(kind(step), []).append(step)
    return list(groups.values())


def explaining(
    plan: Plan,
    steps: Sequence[Arithmetic],
    roundings: Sequence[Epilogue],
    box: BlackBox,
    operands: Operands,
    call: Call,
) -> list[Member]:
    """The steps and roundings that give the bits of ``call``'s designed outputs."""
    rows = slice(0, _FIRST_ROWS)
    quick = _explain(plan, [(s, r) for s in steps for r in roundings], box, operands, call, rows)
    return [
        Member(plan, step, rounding)
        for step, rounding in _explain(plan, quick, box, operands, call, slice(None))
    ]


def _explain(plan, pairs, box, operands: Operands, call: Call, rows: slice):
    by_rounding: dict[Epilogue, set] = {}
    for step, rounding in pairs:
        by_rounding.setdefault(rounding, set()).add(step)
    some = dataclasses.replace(operands, a=operands.a[rows], b=operands.b[rows])
    seen, found = call.answers[rows], []
    every = dict.fromkeys(step for step, _ in pairs)
    for group in by_kind(every):
        acc = accumulators(plan, group, some)
        for rounding, wanted in by_rounding.items():
            bits = output_bits(acc, rounding, box.out_dtype, Extras(), True)
            right = (bits == seen).all(1)
            alive = [s for s, ok in zip(group, right, strict=True) if ok]
            found += [(s, rounding) for s in alive if s in wanted]
    return found


def closest_step(
    plan: Plan, steps: Sequence[Arithmetic], box: BlackBox, operands: Operands, call: Call
) -> Member:
    """Of these steps the one that gets most of ``call``'s designed outputs right."""
    best, most = Member(plan, steps[0]), -1
    for group in by_kind(steps):
        acc = accumulators(plan, group, operands)
        bits = output_bits(acc, Epilogue(), box.out_dtype, Extras(), True)
        right = (bits == call.answers).sum(1)
        if right.max() > most:
            best, most = Member(plan, group[int(right.argmax())]), int(right.max())
    return best


def designed(box: BlackBox, call: Call) -> Operands:
    """The designed pairs of a call."""
    rows, columns = call.asked
    return Operands.of(box.formats, call.a[rows], call.b[columns], True)


def predictions(
    members: Sequence[Member], interface: Interface, probes: Sparse, shape: Shape
) -> np.ndarray:
    """Output bits [members, probes] of one member or more."""
    acc = evaluated(members, probes.operands(interface.formats, shape[2]))
    return np.stack(
        [
            output_bits(acc[m.plan, m.arithmetic], m.epilogue, interface.out_dtype, Extras(), True)
            for m in members
        ]
    )


def evaluated(
    members: Sequence[Member], operands: Operands
) -> dict[tuple[Plan, Arithmetic], np.ndarray]:
    """The accumulators [outputs] of every plan and arithmetic among ``members``."""
    steps: dict[Plan, dict[Arithmetic, None]] = {}
    for member in members:
        steps.setdefault(member.plan, {})[member.arithmetic] = None
    return {
        (plan, step): row
        for plan, own in steps.items()
        for group in by_kind(own)
        for step, row in zip(group, accumulators(plan, group, operands), strict=True)
    }


def ask_steps(box: BlackBox, shape: Shape, probes: Sparse) -> Call:
    """One call of designed pairs."""
    a, b = probes.matrices(shape)
    return box.call("steps of a chain", shape, a, b, questions=len(probes))


def separating_probes(
    members: Sequence[Member], box: BlackBox, shape: Shape, rng: np.random.Generator, tries: int
) -> Sparse | None:
    """Designed pairs about which ``members`` disagree; None if ``tries`` pools show none."""
    layout = Layout.of(shape)
    pool = layout.widened(POOL)
    some = members
    if len(members) > _MAX_COMPARED:
        some = [members[int(i)] for i in rng.choice(len(members), _MAX_COMPARED, replace=False)]
    for _ in range(tries):
        plan = members[int(rng.integers(len(members)))].plan
        probes = draw_probes(rng, box.formats, cells_of(plan, shape[2], rng), pool)
        chosen = pool.chosen(predictions(some, box.interface, probes, shape), layout)
        if chosen is not None:
            return probes[chosen]
    if len(members) > _MAX_COMPARED or layout.each > 1:
        return None
    a, b = dense(rng, box.formats, (_FULL_ROWS, _FULL_ROWS, shape[2]))
    full = Sparse(a, b, np.arange(shape[2]))
    rows = Layout(_FULL_ROWS, 1, 0)
    chosen = rows.chosen(predictions(some, box.interface, full, shape), layout)
    return None if chosen is None else full[chosen]
