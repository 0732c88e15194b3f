"""identify: calls that split what is left of the family, until nothing splits it any more."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from mmaemu_jax.identify import conclude
from mmaemu_jax.identify.arguments import checked
from mmaemu_jax.identify.calls import BlackBox, Call, Shape
from mmaemu_jax.identify.check import mismatches
from mmaemu_jax.identify.equivalence import canonical, losing_additions
from mmaemu_jax.identify.family import Family, family_of
from mmaemu_jax.identify.find_epilogue import ask_epilogue, ignored_operands
from mmaemu_jax.identify.find_plan import Plans, find_plans, separating_triples
from mmaemu_jax.identify.find_steps import (
    POOL,
    ask_steps,
    closest_step,
    designed,
    explaining,
    predictions,
    separating_probes,
)
from mmaemu_jax.identify.full import dense, special
from mmaemu_jax.identify.member import Arithmetic, Epilogue, Member
from mmaemu_jax.identify.plan import Plan, fingerprint
from mmaemu_jax.identify.probes import Sparse
from mmaemu_jax.identify.questions import Layout
from mmaemu_jax.identify.report import EquivalenceClass, Identification
from mmaemu_jax.identify.shared_probes import draw_probes
from mmaemu_jax.identify.step_probes import cells_of

#: Two of which the second has a ragged end at every restart and tile.
DEFAULT_SHAPES: tuple[Shape, ...] = ((256, 256, 4096), (256, 256, 4080))
DEFAULT_BUDGET = 12
_SEED = 777
_TRIES = 6
_FEW, _TRIES_OF_FEW = 12, 30
#: More trees than this left over mean that the shape or the budget is too small to go on.
_MOST_TREES = 400
#: Plans times K: the same, before the trees are even compared.
_MOST_WORK = 1 << 21


def identify(
    gemm: Callable[..., Any],
    *,
    formats: Any = "e4m3",
    out_dtype: Any = np.float32,
    shapes: Sequence[Shape] = DEFAULT_SHAPES,
    budget: int = DEFAULT_BUDGET,
    operands: Sequence[str] = (),
    b_layout: Literal["kn", "nk"] = "kn",
    progress: Callable[[str], None] | None = None,
) -> Identification:
    """Finds out, from bits alone, which arithmetic an FP8 GEMM runs.

    Every call carries hundreds of independent questions; their operands are chosen to split the
    members of the family that explain everything seen so far.

    Args:
        gemm: any callable ``gemm(a, b) -> c`` on arrays: a [M, K] and b [K, N] of float8, c [M, N].
            It is called with numpy arrays and may return anything numpy can read.
        formats: of a and b: "e4m3", "e5m2", a dtype, or a pair of them.
        out_dtype: the dtype of c, one of the five of R18.
        shapes: the (M, N, K) it may be called with; what is found holds for these.
        budget: the most calls to make; fewer than 4 can hardly tell anything.
        operands: keyword operands ``gemm`` takes besides, out of "scale_a", "scale_b",
            "scale_result" (float32 scalars), "bias" (float32 [N]) and "c" (float32 [M, N], and with
            it "beta", a float32 scalar). Without them the epilogue is that of scale 1.
        b_layout: "nk" for a GEMM that takes b as [N, K].
        progress: is given a line of text now and then.

    Returns:
        An :class:`Identification`.

    Raises:
        TypeError, ValueError: an argument of the wrong type or value; a result of ``gemm`` with
            another dtype or shape.
    """
    setting = checked(formats, out_dtype, shapes, budget, operands, b_layout)
    box = BlackBox(gemm, setting.interface, setting.b_layout, budget)
    family = family_of(setting.interface)
    return _Search(box, family, setting.shapes, progress or (lambda line: None)).run()


class _Search:
    """What is left of the family, and the calls that made it so."""

    def __init__(self, box: BlackBox, family: Family, shapes: Sequence[Shape], say):
        self.box, self.family, self.shapes, self.say = box, family, tuple(shapes), say
        self.rng = np.random.default_rng(_SEED)
        self.aliases: dict[Plan, list[Plan]] = {}
        self.nearest: Member | None = None
        self.tried = 0
        self.main = max(self.shapes, key=lambda s: (min(s[:2]), s[2]))

    def run(self) -> Identification:
        plans = self._plans()
        if not (plans.alive or plans.lossless):
            return self._outside("no order of additions explains which small products were lost")
        self.say(f"{len(plans.alive)} plans explain the order of additions")
        if len(plans.alive) * self.main[2] > _MOST_WORK:
            return conclude.undecided(self.box, self.family, self.shapes, len(plans.alive))
        members = self._steps(plans)
        if not members and len(self.aliases) > _MOST_TREES:
            return conclude.undecided(self.box, self.family, self.shapes, len(self.aliases))
        if not members:
            return self._outside("no arithmetic of a step explains the results")
        self.say(f"{len(members)} members explain every step")
        reserve = 2 + len(self.shapes) + 2 * bool(self.box.operands)
        left, separable = self._separate(members, reserve)
        epilogues = self._epilogues(left) if left else []
        if separable and epilogues:
            left, separable = self._separate(left, len(self.shapes))
        if not left:
            return self._outside("no single member explains the results", members[0])
        members = self._with_epilogues(left, epilogues)
        if not members:
            ignored = ", ".join(ignored_operands(self.box, left[0]))
            why = f"the results do not depend on {ignored}" if ignored else ""
            return self._outside(why or "no epilogue explains the results", left[0])
        classes = conclude.classify(self.box, self.shapes, members, self.aliases)
        left = self._verified(classes)
        if not left:
            return self._outside("the closest member fails on full matrices", members[0])
        return conclude.found(self.box, self.family, self.shapes, left, separable, self.tried)

    # -------------------------------------------------------------------------------- the stages

    def _plans(self) -> Plans:
        """A third of the budget at most goes to the tree, and a call to each further shape."""
        others = [s for s in self.shapes if s != self.main and s[2] != self.main[2]]
        alive = find_plans(self.box, self.main, None, max(1, self.box.left // 3))
        for shape in others:
            if self.box.left > 4:
                alive = find_plans(self.box, shape, alive, 1)
        step = Arithmetic() if alive.closest.block == 1 else Arithmetic(13, frac_out=13)
        self.nearest = Member(alive.closest, step)
        return alive

    def _steps(self, plans: Plans) -> list[Member]:
        """Members with neutral epilogue that explain a first call of designed steps."""
        groups = self._groups(plans)
        if not groups or len(groups) > _MOST_TREES:
            return []
        cells = cells_of(groups[0][0], self.main[2], self.rng)
        probes = draw_probes(self.rng, self.box.formats, cells, Layout.of(self.main))
        call = ask_steps(self.box, self.main, probes)
        operands = designed(self.box, call)
        members = []
        for plan, steps in groups:
            members += explaining(plan, steps, self._roundings(), self.box, operands, call)
        if not members:
            self.nearest = closest_step(*groups[0], self.box, operands, call)
        return members

    def _groups(self, plans: Plans) -> list[tuple[Plan, list[Arithmetic]]]:
        """One plan of each tree, with the steps that may go with it."""
        groups: dict[tuple, tuple[Plan, list[Arithmetic]]] = {}

        def put(kind: str, tree: tuple, plan: Plan, steps: list[Arithmetic]) -> None:
            if steps:
                first, _ = groups.setdefault((kind, tree), (plan, steps))
                self.aliases.setdefault(first, []).append(plan)

        losing = losing_additions(self.box.interface)
        for plan in plans.alive:
            kind = "ieee" if plan.block == 1 else "late" if plan.late else "early"
            steps = self.family.steps(plan)
            if kind == "ieee":
                steps = [s for s in steps if s.add in losing]
            put(kind, tuple(fingerprint(plan, k) for _, _, k in self.shapes), plan, list(steps))
        if plans.lossless:
            wide = [s for s in self.family.ieee_steps if s.add not in losing]
            for plan in self.family.ieee_plans:
                put("wide", (), plan, wide)
        return list(groups.values())

    def _roundings(self) -> list[Epilogue]:
        """The epilogues that differ where scales are 1 and there is no NaN."""
        return list(dict.fromkeys(map(self._neutral, self.family.epilogues)))

    def _neutral(self, epilogue: Epilogue) -> Epilogue:
        """The plainest epilogue with the same bits where scales are 1, bias and c 0, without NaN.

        What comes after a rounding to the output turns its -0 into +0 (R17); a step of its own for
        a scale, the bias or c leaves a float32; a NaN can still come from an overflow.
        """
        late = "after rounding" in (epilogue.scales, epilogue.bias)
        stepwise = (
            "separate" in (epilogue.bias, epilogue.c)
            or epilogue.scales in ("a then b", "b then a")
            or "scale_result" in self.box.operands
        )
        return Epilogue(
            scales="after rounding" if late else "alpha",
            via="float32" if stepwise and epilogue.via == "once" else epilogue.via,
            rounding=epilogue.rounding,
            overflow=epilogue.overflow,
            nan=epilogue.nan if epilogue.overflow == "ieee" else "canonical",
        )

    def _separate(self, members: list[Member], reserve: int) -> tuple[list[Member], bool]:
        """Asks on until no pool of probes splits the members, or only ``reserve`` calls are left;
        whether one still would."""
        while len(distinct := self._distinct(members)) > 1:
            probes = self._separating(distinct)
            if probes is None:
                return members, False
            if self.box.left <= reserve:
                return members, True
            call = ask_steps(self.box, self.main, probes)
            said = predictions(members, self.box.interface, probes, self.main)
            right = (said == call.answers).all(1)
            members = [m for m, ok in zip(members, right, strict=True) if ok]
            self.say(f"{len(members)} members explain every step")
        return members, False

    def _distinct(self, members: list[Member]) -> list[Member]:
        """One of those that are equal by argument."""
        return list({canonical(m, self.box.interface, self.shapes): m for m in members}.values())

    def _separating(self, members: list[Member]) -> Sparse | None:
        """Operands about which ``members`` disagree; the fewer they are, the longer the search."""
        triples = separating_triples(members, self.box, self.main, self.rng)
        if triples is not None:
            return triples
        tries = _TRIES if len(members) > _FEW else _TRIES_OF_FEW
        probes = separating_probes(members, self.box, self.main, self.rng, tries)
        if probes is None:
            self.tried += tries * POOL
        return probes

    def _epilogues(self, members: list[Member]) -> list[Epilogue]:
        """Every epilogue that agrees with the roundings found and explains awkward scales."""
        known = {m.epilogue for m in members}
        alive = [e for e in self.family.epilogues if self._neutral(e) in known]
        if self.box.left > len(self.shapes):
            alive = self._by_nan(alive)
        return self._by_scales(members, alive)

    def _with_epilogues(self, members: list[Member], epilogues: list[Epilogue]) -> list[Member]:
        return [
            dataclasses.replace(m, epilogue=e)
            for m in members
            for e in epilogues
            if self._neutral(e) == self._neutral(m.epilogue)
        ]

    def _by_scales(self, members: list[Member], alive: list[Epilogue]) -> list[Epilogue]:
        number = 0
        while len(alive) > 1 and self.box.left > len(self.shapes):
            asked = ask_epilogue(self.box, self.main, members, alive, number)
            if asked is None:
                break
            number, alive = number + 1, asked[1]
        return alive

    def _by_nan(self, alive: list[Epilogue]) -> list[Epilogue]:
        a, b = special(self.box.formats, self.main)
        call = self.box.call("what is not finite", self.main, a, b)

        def explains(epilogue: Epilogue) -> bool:
            return self._explains(Member(Plan(1, True), epilogue=epilogue), call)

        others = dict.fromkeys(dataclasses.replace(e, nan="other") for e in alive)
        return [e for e in alive if explains(e)] or [e for e in others if explains(e)]

    def _verified(self, classes: list[EquivalenceClass]) -> list[EquivalenceClass]:
        """The classes that also explain full matrices at every shape, and all calls before."""
        for shape in self.shapes:
            if self.box.left:
                a, b = dense(self.rng, self.box.formats, shape)
                self.box.call("full matrices", shape, a, b)
        calls = self.box.calls[::-1]
        return [c for c in classes if all(self._explains(c.members[0], x) for x in calls)]

    def _explains(self, member: Member, call: Call) -> bool:
        return not len(mismatches(member, self.box.interface, call))

    def _outside(self, why: str, nearest: Member | None = None) -> Identification:
        return conclude.outside(
            self.box, self.family, self.shapes, self._plain_reason() or why, nearest or self.nearest
        )

    def _plain_reason(self) -> str:
        """What is wrong with a GEMM that no arithmetic explains: constant, or not repeatable."""
        seen = np.unique(np.concatenate([call.bits.reshape(-1) for call in self.box.calls]))
        if len(seen) == 1:
            return f"every output is {int(seen[0]):#x}, whatever the operands are"
        if not self.box.left:
            return ""
        last = self.box.calls[-1]
        again = self.box.call("the same again", last.shape, last.a, last.b, last.extras)
        differ = int((again.bits != last.bits).sum())
        return f"not repeatable: {differ} outputs differ when a call is repeated" if differ else ""
