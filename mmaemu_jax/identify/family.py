"""The family as data: lists of choices, and every way to combine them.

A new member is a new entry in one of the tuples below; a new kind of choice is a field of
:mod:`mmaemu_jax.identify.member` and the line that evaluates it.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator

import numpy as np

from mmaemu_jax.formats import format_of
from mmaemu_jax.identify.calls import Interface
from mmaemu_jax.identify.member import Arithmetic, Epilogue, Member
from mmaemu_jax.identify.output import nan_bits
from mmaemu_jax.identify.parts import WHOLE, Parts
from mmaemu_jax.identify.plan import Plan
from mmaemu_jax.identify.triples import contrast

#: (products per block, late accumulator); 0 is a whole chain.
BLOCKS = tuple((n, late) for n in (4, 8, 16, 32, 64, 0) for late in (False, True))

#: Slow accumulation (R11).
SLOW = Parts(0, 128)

RESTARTS = (
    WHOLE,
    *(
        Parts(0, size, residue=end)
        for size in (32, 64, 128, 256, 512, 1024)
        for end in ("last", "first")
    ),
)


def _splits(count: int) -> tuple[Parts, ...]:
    """Tiles of 64 interleaved (R12), of 128 contiguous (R13), and finer contiguous ones."""
    return (
        Parts(count, 64, True),
        Parts(count, 64, True, "pairwise"),
        Parts(count, 128),
        Parts(count, 32),
        Parts(count, 32, combine="halves"),
    )


SPLITS = (WHOLE, *(split for count in range(2, 33) for split in _splits(count)))

#: IEEE dots: side by side as SIMD lanes, or a tree over all elements. Without either, products may
#: be added with pairs swapped.
LANES = (
    WHOLE,
    *(
        Parts(count, 1, True, combine)
        for count in (2, 4, 8, 16, 32, 64)
        for combine in ("serial", "halves", "neighbours")
    ),
    Parts(-1, combine="halves"),
    Parts(-1, combine="neighbours"),
)

FRACTIONS = (10, 11, 12, 13, 14, 15, 16, 21, 22, 23, 24, 25)
RESULT_FRACTIONS = (10, 12, 13, 14, 22, 23)

_CONVENTIONS = {
    "subnormals": ("gradual", "normalised", "flushed"),
    "zeros": ("absent", "lend"),
    "products": ("sum", "normalised"),
}
_BLOCK_CHOICES = {
    "frac": FRACTIONS,
    "align": ("truncate", "nearest", "floor"),
    "frac_out": RESULT_FRACTIONS,
    "result": ("truncate", "nearest"),
    **_CONVENTIONS,
}
_IEEE_CHOICES = {
    "add": ("f32", "f32 toward zero", "f64", "exact"),
    "subnormals": ("gradual", "flushed"),
}


def _combinations(kind, choices: dict[str, tuple]) -> tuple:
    names = list(choices)
    return tuple(
        kind(**dict(zip(names, values, strict=True)))
        for values in itertools.product(*choices.values())
    )


@dataclasses.dataclass(frozen=True)
class Family:
    """All members that the search considers, for one output dtype and set of further operands.

    Attributes:
        plans: the trees of tensor-core kernels.
        ieee_plans: the trees of IEEE dots.
        steps: arithmetics of a block with the accumulator early, and of one with it late.
        ieee_steps: arithmetics of an IEEE dot.
        epilogues: what follows.
    """

    plans: tuple[Plan, ...]
    ieee_plans: tuple[Plan, ...]
    early_steps: tuple[Arithmetic, ...]
    late_steps: tuple[Arithmetic, ...]
    ieee_steps: tuple[Arithmetic, ...]
    epilogues: tuple[Epilogue, ...]

    def steps(self, plan: Plan) -> tuple[Arithmetic, ...]:
        """The arithmetics that ``plan`` is combined with."""
        if plan.block == 1:
            return self.ieee_steps
        return self.late_steps if plan.late else self.early_steps

    @property
    def size(self) -> int:
        """Number of members."""
        late = sum(plan.late for plan in self.plans)
        sums = len(self.ieee_plans) * len(self.ieee_steps) + late * len(self.late_steps)
        sums += (len(self.plans) - late) * len(self.early_steps)
        return sums * len(self.epilogues)

    def members(self) -> Iterator[Member]:
        """Every member, one by one; there may be a great many."""
        for plan in (*self.plans, *self.ieee_plans):
            for step, epilogue in itertools.product(self.steps(plan), self.epilogues):
                yield Member(plan, step, epilogue)

    def draw(self, rng: np.random.Generator) -> Member:
        """A member at random: half of them split, a quarter of them IEEE dots."""
        plans = self.ieee_plans if rng.random() < 0.25 else self.plans
        split = rng.random() < 0.5
        while True:
            plan = plans[rng.integers(len(plans))]
            if plan.split.is_whole != split:
                break
        steps = self.steps(plan)
        return Member(
            plan,
            steps[rng.integers(len(steps))],
            self.epilogues[rng.integers(len(self.epilogues))],
        )

    def __contains__(self, member: Member) -> bool:
        plans = self.ieee_plans if member.plan.block == 1 else self.plans
        return (
            member.plan in plans
            and member.arithmetic in self.steps(member.plan)
            and member.epilogue in self.epilogues
        )


@functools.lru_cache(maxsize=64)
def family_of(interface: Interface) -> Family:
    """The family for GEMMs of these formats, output dtype and further operands.

    An alignment so wide that the output dtype cannot show what it loses is left out.
    """
    widest = contrast(interface.formats, interface.out_dtype)
    choices = _BLOCK_CHOICES | {"frac": tuple(f for f in FRACTIONS if f < widest - 1)}
    steps = _combinations(Arithmetic, choices)
    late = [dataclasses.replace(s, add=a) for a in ("f32", "f32 toward zero") for s in steps]
    return Family(
        block_plans(),
        ieee_plans(),
        steps,
        tuple(late),
        _combinations(Arithmetic, _IEEE_CHOICES),
        epilogues(interface),
    )


@functools.cache
def block_plans() -> tuple[Plan, ...]:
    """The trees of tensor-core kernels, whatever the interface."""
    return tuple(
        Plan(n, late, split, restart)
        for split, restart, (n, late) in itertools.product(SPLITS, RESTARTS, BLOCKS)
    )


@functools.cache
def ieee_plans() -> tuple[Plan, ...]:
    """The trees of IEEE dots, whatever the interface."""
    return tuple(
        Plan(1, True, split, restart, lanes, swapped)
        for split, restart, lanes in itertools.product(SPLITS, RESTARTS, LANES)
        if split.is_whole or lanes.is_whole
        for swapped in (False, *[True] * lanes.is_whole)
    )


def every_plan() -> tuple[Plan, ...]:
    """The trees of both kinds."""
    return (*block_plans(), *ieee_plans())


def epilogues(interface: Interface) -> tuple[Epilogue, ...]:
    """The epilogues that an output dtype and further operands leave a choice of."""
    out_dtype, operands = interface.out_dtype, interface.operands
    unsigned = {nan_bits(out_dtype, how): how for how in ("quiet", "canonical")}
    choices: dict[str, tuple] = {"nan": (*unsigned.values(), "signed")}
    choices["nan"] += ("signed odd",) if out_dtype == "bfloat16" else ()
    scaled = "scale_a" in operands and "scale_b" in operands
    narrow = out_dtype != np.float32
    if scaled:
        choices["scales"] = ("alpha", "a then b", "b then a", "once")
        choices["scales"] += ("after rounding",) if narrow else ()
    if "bias" in operands:
        choices["bias"] = ("fused", "separate", *(("after rounding",) if narrow else ()))
    if "c" in operands:
        choices["c"] = ("fused", "separate")
    if narrow:
        choices["via"] = ("float32", "once")
        choices["rounding"] = ("nearest", "truncate")
    if format_of(out_dtype) is not None:
        choices["via"] += ("bfloat16", "float16")
        choices["overflow"] = ("saturate", "ieee")
    return _combinations(Epilogue, choices)
