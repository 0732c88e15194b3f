"""First question: in which tree are the products added? Asked by triples that cancel or not."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from mmaemu_jax.identify.absorbed import absorbed
from mmaemu_jax.identify.calls import BlackBox, Shape
from mmaemu_jax.identify.equivalence import losing_additions
from mmaemu_jax.identify.family import every_plan
from mmaemu_jax.identify.member import Epilogue, Member
from mmaemu_jax.identify.output import Extras, output_bits
from mmaemu_jax.identify.plan import Plan
from mmaemu_jax.identify.probes import Sparse
from mmaemu_jax.identify.questions import Layout
from mmaemu_jax.identify.triples import (
    draw_triples,
    lowest_exponent,
    small_exponent,
    triple_probes,
)

_POOL = 1500
_TRIES = 3
_SEED = 20_240


@dataclasses.dataclass(frozen=True)
class Plans:
    """Trees that explain every triple.

    ``lossless``: no triple lost anything, so additions may be too wide for the operands to show
    any order; ``alive`` are the plans that explain this with narrow ones. ``closest`` explains most
    of the last call.
    """

    alive: tuple[Plan, ...]
    lossless: bool
    closest: Plan


def find_plans(box: BlackBox, shape: Shape, alive: Plans | None, calls: int) -> Plans:
    """The family's plans (or those of ``alive``) that explain ``calls`` calls at ``shape``."""
    k, layout = shape[2], Layout.of(shape)
    plans = list(alive.alive if alive else every_plan())
    lossless, closest = (alive.lossless, alive.closest) if alive else (True, plans[0])
    for number in range(calls):
        first = alive is None and number == 0
        triples = _choose(plans, k, layout, number, first) if plans or first else None
        if triples is None:
            break
        lost = _ask(box, shape, triples)
        lossless = lossless and not lost.any()
        if first:
            predicted = _predicted_at_first(k, triples.tobytes())
        else:
            predicted = absorbed(plans, k, triples)
        right = (predicted == lost).sum(1)
        closest = plans[int(right.argmax())]
        plans = [p for p, ok in zip(plans, right == len(lost), strict=True) if ok]
        if not plans:
            break
    return Plans(tuple(plans), lossless, closest)


@functools.lru_cache(maxsize=16)
def _predicted_at_first(k: int, triples: bytes) -> np.ndarray:
    """What every plan predicts for the first call, which is always the same."""
    asked = np.frombuffer(triples, np.int64).reshape(3, -1)
    return absorbed(every_plan(), k, asked)


def _choose(plans: Sequence[Plan], k: int, layout: Layout, number: int, first: bool):
    """Triples that the plans disagree about; None if there are none."""
    if k < 3:
        return None
    rng = np.random.default_rng([_SEED, k, number])
    if first:
        return draw_triples(rng, layout, k)
    pool = layout.widened(_POOL)
    triples = draw_triples(rng, pool, k)
    chosen = pool.chosen(absorbed(plans, k, triples), layout)
    return None if chosen is None else triples[:, chosen]


def separating_triples(
    members: Sequence[Member], box: BlackBox, shape: Shape, rng: np.random.Generator
) -> Sparse | None:
    """Triples about which the trees of ``members`` disagree; None if none were found."""
    losing = losing_additions(box.interface)
    plans = {m.plan: None for m in members if m.plan.block != 1 or m.arithmetic.add in losing}
    if len(plans) < 2 or shape[2] < 3:
        return None
    layout = Layout.of(shape)
    pool = layout.widened(_POOL)
    for _ in range(_TRIES):
        triples = draw_triples(rng, pool, shape[2])
        chosen = pool.chosen(absorbed(list(plans), shape[2], triples), layout)
        if chosen is not None:
            return _probes(box, shape, triples[:, chosen])
    return None


def _small(box: BlackBox) -> tuple[int, int]:
    return small_exponent(box.formats, lowest_exponent(box.out_dtype))


def _probes(box: BlackBox, shape: Shape, triples: np.ndarray) -> Sparse:
    return triple_probes(box.formats, triples, Layout.of(shape), _small(box))


def _ask(box: BlackBox, shape: Shape, triples: np.ndarray) -> np.ndarray:
    """Which of the triples lost their small product."""
    a, b = _probes(box, shape, triples).matrices(shape)
    call = box.call("order of additions", shape, a, b, questions=triples.shape[1])
    small = np.array([2.0 ** sum(_small(box))])
    return call.answers != output_bits(small, Epilogue(), box.out_dtype, Extras(), True)
