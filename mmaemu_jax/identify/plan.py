"""How K is summed, as data: nested parts, and in the innermost of them chains of blocks.

A plan is a tree of additions. The levels, from the outside: split-K, restarts, lanes; each cuts
the index range of the level above and says in which order its parts are added. In a lane a chain
adds blocks of products one after the other (R9).
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from mmaemu_jax.identify.parts import WHOLE, Parts, combination

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Plan:
    """The whole tree of additions of a dot product.

    Attributes:
        block: products per block (R3 to R7); 1: every product is added by itself, as an IEEE dot
            does; 0: all of a chain is one block.
        late: the accumulator is added after the block's sum (R8); always so with block 1.
        split: split-K (R12, R13).
        restart: new chains every ``tile`` elements, added serially from +0 (R11).
        lanes: chains side by side, as the lanes of a SIMD dot.
        swapped: with block 1, a chain adds every second product before the one that stands in front
            of it, as AVX-512's vdpbf16ps does.
    """

    block: int
    late: bool = False
    split: Parts = WHOLE
    restart: Parts = WHOLE
    lanes: Parts = WHOLE
    swapped: bool = False

    @property
    def levels(self) -> tuple[Parts, Parts, Parts]:
        return self.split, self.restart, self.lanes

    def in_order(self, elements: np.ndarray, own: np.ndarray) -> np.ndarray:
        """A chain's elements, whose ascending indices in it are ``own``, as they are added."""
        return elements[np.argsort(own ^ 1)] if self.swapped else elements

    def blocks_of(self, elements: np.ndarray, own: np.ndarray) -> list[np.ndarray]:
        """A chain's elements, whose ascending indices in it are ``own``, block by block."""
        if self.block < 2:
            elements = self.in_order(elements, own)
            return [elements[i : i + 1] for i in range(len(elements))] if self.block else [elements]
        return np.split(elements, np.flatnonzero(np.diff(own // self.block)) + 1)


@functools.lru_cache(maxsize=1 << 16)
def fingerprint(plan: Plan, k: int) -> int:
    """Equal for two plans exactly if they are the same tree over k elements (by 64-bit hashes).

    Additions commute; a block is the set of its products; a chain's first block is added to +0,
    which changes nothing.
    """

    def add(x: int, y: int) -> int:
        return hash((x, y) if x < y else (y, x))

    def leaf(products: np.ndarray) -> int:
        return hash((-1, *products.tolist()))

    def chain(elements: np.ndarray, own: np.ndarray) -> int:
        first, *others = plan.blocks_of(elements, own)
        c = leaf(first)
        for products in others:
            c = add(c, leaf(products)) if plan.late else hash((-2, c, leaf(products)))
        return c

    everything = np.arange(k)
    return walk(plan.levels, everything, everything, k, chain, add) or 0


def chains_of(plan: Plan, k: int) -> list[list[np.ndarray]]:
    """Positions of every block of every chain, chains in the order of their first position."""
    everything, chains = np.arange(k), []
    walk(
        plan.levels,
        everything,
        everything,
        k,
        chain=lambda elements, own: chains.append(plan.blocks_of(elements, own)),
        add=lambda x, y: None,
    )
    return sorted(chains, key=lambda blocks: int(blocks[0][0]))


def walk(
    levels: Sequence[Parts],
    elements: np.ndarray,
    own: np.ndarray,
    length: int,
    chain: Callable[[np.ndarray, np.ndarray], T],
    add: Callable[[T, T], T],
) -> T | None:
    """The sum of ``elements`` in the tree of ``levels``: its leaves by ``chain``, sums by ``add``.

    Args:
        levels: from the outside.
        elements: some of ``length``; a part without any is +0, which no addition sees.
        own: their indices, ascending.
        chain: takes the elements of one chain, and their indices in it.
        add: takes two partial sums.

    Returns:
        None without elements.
    """
    if not len(elements):
        return None
    if not levels:
        return chain(elements, own)
    level, *inner = levels
    if level.is_whole:
        return walk(inner, elements, own, length, chain, add)
    part, at = level.locate(own, length)
    order = np.argsort(part, kind="stable")
    partials: list[T | None] = [None] * level.parts(length)
    for here in np.split(order, np.flatnonzero(np.diff(part[order])) + 1):
        number = int(part[here[0]])
        size = level.length_of(number, length)
        partials[number] = walk(inner, elements[here], at[here], size, chain, add)
    return _fold(level, partials, add)


def _fold(level: Parts, partials: list[T | None], add: Callable[[T, T], T]) -> T | None:
    """The sum of ``partials`` in the order of ``level``; None is a part without elements."""

    def plus(x: T | None, y: T | None) -> T | None:
        return (y if x is None else x) if x is None or y is None else add(x, y)

    folds, rank = combination(level.combine, len(partials))
    for indices in folds:
        sums: list[T | None] = [None] * (int(indices.max()) + 1)
        for partial, index in zip(partials, indices, strict=True):
            sums[index] = plus(sums[index], partial)
        partials = sums
    return functools.reduce(plus, (partials[i] for i in np.argsort(rank)), None)
