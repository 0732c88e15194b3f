"""Accumulation plans as data (R10 to R13): which chains a GEMM runs and how they are added.

A plan is five numbers. Kernels and the reference interpret the same numbers, independently.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class SplitK:
    """A split-K decision: ``S`` splits, combined by ``scheme`` ("none" when S == 1)."""

    S: int
    scheme: str = "none"


#: How parts can be combined: R12 "pairwise", and serially under its two names (R12, R13).
SCHEMES = ("serial", "pairwise", "contiguous")

#: Bounds of a plan; csrc/numerics/accumulate.h has the same and says why.
MAX_SPLITS = 2**12
MAX_TILE_K = 2**30
MAX_CHUNK_K = 2**40


@dataclasses.dataclass(frozen=True)
class SplitRule:
    """How one platform cuts K and combines the parts.

    Attributes:
        tile_k: elements per k-tile.
        interleaved: split s owns the tiles t with t mod S = s (R12); otherwise the contiguous
            tiles [s q, (s + 1) q), q = ceil(T / S) (R13).
        schemes: the scheme names it knows.
        empty_split_recorded: a split that owns no tile was recorded (else it warns, R13).
    """

    tile_k: int
    interleaved: bool
    schemes: tuple[str, ...]
    empty_split_recorded: bool

    def __post_init__(self):
        if isinstance(self.tile_k, bool) or not isinstance(self.tile_k, int):
            raise TypeError(f"SplitRule: tile_k must be an int, got {self.tile_k!r}.")
        if not 1 <= self.tile_k <= MAX_TILE_K:
            raise ValueError(f"SplitRule: tile_k must be in 1..{MAX_TILE_K}, got {self.tile_k}.")
        if not isinstance(self.schemes, tuple) or not self.schemes:
            raise TypeError(
                f"SplitRule: schemes must be a non-empty tuple of names, got {self.schemes!r}."
            )
        unknown = [scheme for scheme in self.schemes if scheme not in SCHEMES]
        if unknown:
            raise ValueError(
                f"SplitRule: unknown scheme {unknown[0]!r}; known: {', '.join(SCHEMES)}."
            )
        for field in ("interleaved", "empty_split_recorded"):
            if not isinstance(getattr(self, field), bool):
                raise TypeError(f"SplitRule: {field} must be a bool.")

    def leaves_split_empty(self, splits: int, k: int) -> bool:
        """Whether some of ``splits`` splits own no tile of a contraction of length ``k``."""
        tiles = -(-k // self.tile_k)
        per_split = 1 if self.interleaved else -(-tiles // splits)
        return (splits - 1) * per_split >= tiles


INTERLEAVED_64 = SplitRule(64, True, ("serial", "pairwise"), empty_split_recorded=True)
CONTIGUOUS_128 = SplitRule(128, False, ("contiguous",), empty_split_recorded=False)


@dataclasses.dataclass(frozen=True)
class AccumulationPlan:
    """One GEMM's plan.

    Attributes:
        chunk_k: within a split's own elements, a new chain starts every ``chunk_k`` of them and
            the chain results are added serially from +0 in fp32 RNE (slow, R11); 0: one chain.
        splits: S; 1 means unsplit, and the three fields below mean nothing.
        tile_k, interleaved: as in :class:`SplitRule`.
        pairwise: combine as R12 "pairwise"; otherwise ((p0 + p1) + p2) + ... .
    """

    chunk_k: int = 0
    splits: int = 1
    tile_k: int = 0
    interleaved: bool = False
    pairwise: bool = False


def make_plan(
    use_fast_accum: bool, split: SplitK, rule: SplitRule | None, slow_chunk: int | None
) -> AccumulationPlan:
    """The plan of a GEMM; ``rule`` may be None when ``split.S == 1``.

    A split's k-tiles divide ``slow_chunk`` (64 and 128 into 128), so that "every two own tiles"
    of R12 and "every tile" of R13 are both "every slow_chunk own elements".
    """
    chunk = 0 if use_fast_accum else slow_chunk
    if chunk is None:
        raise ValueError("make_plan: slow accumulation needs a slow_chunk.")
    if split.S == 1:
        return AccumulationPlan(chunk_k=chunk)
    if rule is None:
        raise ValueError("make_plan: a split needs a split rule.")
    if chunk % rule.tile_k:
        raise ValueError(f"make_plan: tile_k {rule.tile_k} must divide slow_chunk {chunk}.")
    pairwise = split.scheme == "pairwise"
    return AccumulationPlan(chunk, split.S, rule.tile_k, rule.interleaved, pairwise)


#: What dot uses: one chain over all of K, from c (R9).
ONE_CHAIN = AccumulationPlan()
