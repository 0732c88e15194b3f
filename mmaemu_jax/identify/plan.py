"""How K is summed, as data: nested parts, and in the innermost of them chains of blocks.

A plan is a tree of additions. The levels, from the outside: split-K, restarts, lanes; each cuts
the index range of the level above and says in which order its parts are added. In a lane a chain
adds blocks of products one after the other (R9).
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import numpy as np

Combine = Literal["serial", "pairwise", "halves", "neighbours"]
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Parts:
    """One level: ``count`` parts of the own index range, or as many as there are ``tile`` s.

    Attributes:
        count: number of parts; 0: one for every ``tile`` elements; -1: one for every element.
        tile: elements that stay together.
        interleaved: tile t belongs to part t mod count, else to contiguous runs of tiles.
        combine: "serial" is ((p0 + p1) + p2) + ...; "pairwise" is that of R12; "halves" adds part
            i + ceil(n / 2) to part i until one is left; "neighbours" adds 2 i + 1 to 2 i likewise.
        residue: with count 0, whether a shorter part is the "last" or the "first".
    """

    count: int = 1
    tile: int = 1
    interleaved: bool = False
    combine: Combine = "serial"
    residue: Literal["last", "first"] = "last"

    @property
    def is_whole(self) -> bool:
        return self.count == 1

    def parts(self, length: int) -> int:
        """How many parts ``length`` elements have."""
        if self.count < 0:
            return length
        return self.count or max(1, -(-length // self.tile))

    def locate(self, p: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """The part of own index ``p``, and its index there."""
        if self.count == 1:
            return np.zeros_like(p), p
        if self.count < 0:
            return p, np.zeros_like(p)
        if self.count == 0:
            short = length % self.tile if self.residue == "first" else 0
            shift = self.tile - short if short else 0
            part = (p + shift) // self.tile
            return part, np.where(part == 0, p, p + shift - part * self.tile)
        tile = p // self.tile
        if self.interleaved:
            return tile % self.count, tile // self.count * self.tile + p % self.tile
        tiles = -(-length // self.tile)
        per = -(-tiles // self.count)
        part = tile // per
        return part, p - part * per * self.tile

    def length_of(self, part: int, length: int) -> int:
        """How many elements ``part`` has; the last tile of a split counts as full (R12)."""
        if self.count == 1:
            return length
        if self.count < 0:
            return 1
        tiles = -(-length // self.tile)
        if self.count == 0:
            short = length % self.tile
            last = 0 if self.residue == "first" else tiles - 1
            return short if short and part == last else self.tile
        if self.interleaved:
            return self.tile * -(-max(0, tiles - part) // self.count)
        per = -(-tiles // self.count)
        return self.tile * min(per, max(0, tiles - part * per))


@functools.lru_cache(maxsize=4096)
def combination(combine: Combine, n: int) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """How n parts are added: folds (new index of every index), then ranks of a serial sum."""
    index, folds = np.arange(n), []
    if combine == "neighbours":
        while n > 1:
            folds.append(index[:n] // 2)
            n = -(-n // 2)
    elif combine == "halves":
        while n > 1:
            half = -(-n // 2)
            folds.append(np.where(index[:n] < half, index[:n], index[:n] - half))
            n = half
    elif combine == "pairwise" and n > 1:
        half = -(-n // 2)
        slots = min(half, n - 1)
        slot = np.where(index[: n - 1] < half, index[: n - 1], index[: n - 1] - half)
        folds.append(np.append(slot, slots))
        return tuple(folds), np.append(np.arange(1, slots + 1), 0)
    return tuple(folds), np.arange(n)


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
    split: Parts = Parts()
    restart: Parts = Parts()
    lanes: Parts = Parts()
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


@functools.lru_cache(maxsize=1024)
def fingerprint(plan: Plan, k: int) -> bytes:
    """Equal for two plans exactly if they are the same tree over k elements.

    Additions commute; a block is the set of its products; a chain's first block is added to +0,
    which changes nothing.
    """

    def node(*children: bytes) -> bytes:
        return hashlib.blake2b(b"".join(sorted(children)), digest_size=12).digest()

    def add(x: bytes, y: bytes) -> bytes:
        return node(b"+", x, y)

    def leaf(products: np.ndarray) -> bytes:
        return products.tobytes() if len(products) == 1 else node(b"block", products.tobytes())

    def chain(elements: np.ndarray, own: np.ndarray) -> bytes:
        first, *others = plan.blocks_of(elements, own)
        c = leaf(first)
        for products in others:
            if plan.late:
                c = add(c, leaf(products))
            else:
                c = node(b"block with c", node(b"c", c), products.tobytes())
        return c

    everything = np.arange(k)
    return walk(plan.levels, everything, everything, k, chain, add) or b""


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
