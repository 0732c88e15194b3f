"""One level of a plan: how an index range is cut, and in which order its parts are added."""

import dataclasses
import functools
from typing import Literal

import numpy as np

Combine = Literal["serial", "pairwise", "halves", "neighbours"]


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


WHOLE = Parts()


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
