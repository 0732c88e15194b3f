"""Which small products a tree of additions loses: what its shape does to triples that cancel."""

from collections.abc import Sequence

import numpy as np

from mmaemu_jax.identify.parts import Parts, combination
from mmaemu_jax.identify.plan import Plan


def absorbed(plans: Sequence[Plan], k: int, triples: np.ndarray) -> np.ndarray:
    """Whether a small product at r is lost if large opposite ones stand at p and q.

    It is, if r is added to something before p and q have met: r lies below the node of the tree
    where p and q meet. This is what FPRev asks of a sum, for nodes with any number of children.

    Args:
        plans: the trees; quick for many that share their levels.
        k: length of the dot products.
        triples: int64 [3, T]: p, q and r, different.

    Returns:
        bool [plans, T].
    """
    lost = np.empty((len(plans), triples.shape[1]), bool)
    reached: dict = {}
    for row, plan in enumerate(plans):
        if plan.levels not in reached:
            reached = {plan.levels: _descend(plan.levels, k, triples)}
        decided, open_, own = reached[plan.levels]
        block = own // plan.block if plan.block else np.zeros_like(own)
        block = block ^ 1 if plan.swapped else block
        inside = block[2] <= np.maximum(block[0], block[1])
        if plan.late:
            inside = np.where(block[0] == block[1], block[2] == block[0], inside)
        lost[row] = np.where(open_, inside, decided)
    return lost


def _descend(levels, k: int, triples: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lost by the levels' own additions, not yet decided, and indices in the innermost chain."""
    own = triples.copy()
    length = np.full(own.shape[1], k)
    lost = np.zeros(own.shape[1], bool)
    todo = np.ones(own.shape[1], bool)
    for level in levels:
        if level.is_whole:
            continue
        for size in np.unique(length[todo]):
            at = np.flatnonzero(todo & (length == size))
            part, inner = level.locate(own[:, at], int(size))
            apart = part[0] != part[1]
            lost[at[apart]] = _lost_between(level, int(size), part[:, apart])
            todo[at[apart | (part[2] != part[0])]] = False  # or r joins after p and q have met
            own[:, at] = inner
            numbers, index = np.unique(part[0], return_inverse=True)
            length[at] = np.array([level.length_of(int(n), int(size)) for n in numbers])[index]
    return lost, todo, own


def _lost_between(level: Parts, length: int, part: np.ndarray) -> np.ndarray:
    folds, rank = combination(level.combine, level.parts(length))
    lost, todo = np.zeros(part.shape[1], bool), np.ones(part.shape[1], bool)
    for fold in folds:
        part = fold[part]
        met = todo & (part[0] == part[1])
        lost[met] = part[2][met] == part[0][met]
        todo &= ~met
    if todo.any():
        p, q, r = rank[part]
        lost[todo] = (r <= np.maximum(p, q))[todo]
    return lost
