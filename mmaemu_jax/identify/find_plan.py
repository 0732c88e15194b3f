"""First question: in which tree are the products added? Asked by triples that cancel or not."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from mmaemu_jax.identify.absorbed import absorbed
from mmaemu_jax.identify.calls import BlackBox, Shape
from mmaemu_jax.identify.family import every_plan
from mmaemu_jax.identify.member import Epilogue
from mmaemu_jax.identify.output import Extras, output_bits
from mmaemu_jax.identify.plan import Plan
from mmaemu_jax.identify.triples import (
    draw_triples,
    lowest_exponent,
    small_exponent,
    triple_matrices,
)

_POOL = 1500
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
    k = shape[2]
    plans = list(alive.alive if alive else every_plan())
    lossless, closest = (alive.lossless, alive.closest) if alive else (True, plans[0])
    for number in range(calls):
        first = alive is None and number == 0
        triples = _choose(plans, k, min(shape[:2]), number, first) if plans or first else None
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


def _choose(plans: Sequence[Plan], k: int, count: int, number: int, first: bool):
    """Triples that the plans disagree about; None if there are none."""
    if k < 3:
        return None
    rng = np.random.default_rng([_SEED, k, number])
    if first:
        return draw_triples(rng, count, k)
    pool = draw_triples(rng, _POOL, k)
    chosen = separating_columns(absorbed(plans, k, pool), count)
    return pool[:, chosen] if len(chosen) else None


def separating_columns(predictions: np.ndarray, count: int) -> np.ndarray:
    """Up to ``count`` columns of [hypotheses, columns], the most telling first.

    A column tells as much as the groups it cuts the hypotheses into are small; each one taken has
    to split further what those before it have left together.
    """
    total = len(predictions)
    _, ids = np.unique(predictions, return_inverse=True)
    ids = ids.reshape(predictions.shape)
    varied = np.flatnonzero((ids != ids[:1]).any(0))
    together = [np.square(np.unique(ids[:, c], return_counts=True)[1]).sum() for c in varied]
    varied = varied[np.argsort(together, kind="stable")]
    groups, found, chosen = np.zeros(total, np.int64), 1, []
    for column in varied:
        _, split = np.unique(groups * (ids.max() + 1) + ids[:, column], return_inverse=True)
        if split.max() + 1 > found:
            groups, found = split, split.max() + 1
            chosen.append(column)
            if len(chosen) == count or found == total:
                break
    taken = set(chosen)
    rest = [c for c in varied if c not in taken][: count - len(chosen)]
    return np.array([*chosen, *rest], np.int64)


def _ask(box: BlackBox, shape: Shape, triples: np.ndarray) -> np.ndarray:
    """Which of the triples lost their small product."""
    small = small_exponent(box.formats, lowest_exponent(box.out_dtype))
    a, b = triple_matrices(box.formats, triples, shape, small)
    call = box.call("order of additions", shape, a, b, pairs=triples.shape[1])
    kept = output_bits(np.array([2.0 ** sum(small)]), Epilogue(), box.out_dtype, Extras(), True)
    return call.diagonal != kept
