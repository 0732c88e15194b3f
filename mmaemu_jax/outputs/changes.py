"""What a library, a caller or a recording may have done otherwise, and whether it explains outputs.

A change counts only if it gives every bit that was seen. Each is computed by the kernels, first on
a small block of outputs in which some differ, then on all.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mmaemu_jax.accumulate import (
    CONTIGUOUS_128,
    INTERLEAVED_64,
    AccumulationPlan,
    SplitK,
    SplitRule,
    make_plan,
)
from mmaemu_jax.formats import FORMATS, format_of
from mmaemu_jax.identify import classify
from mmaemu_jax.identify.classify_calls import spelled
from mmaemu_jax.identify.models import UNSPLIT
from mmaemu_jax.instruction import InstructionModel, Preset, get_preset, list_presets
from mmaemu_jax.outputs.compute import outputs_of
from mmaemu_jax.outputs.recorded import RecordedGemm
from mmaemu_jax.plan import GemmPlan
from mmaemu_jax.testing.bits import bits_of

_BLOCK = (4, 64)
_MOST_SPLITS = 32
#: One product after the other: what XLA's own dot does on CPUs (docs/identify.md).
IEEE_FLOAT32 = InstructionModel(nfma=1, frac=23, frac_out=23, min_exp=-132, late_c=True)
#: What MMA-Sim publishes for tcgen05 and for sm_120; no profile, since nothing was compared here.
BLACKWELL = Preset(
    "blackwell_published",
    nfma=32,
    frac=25,
    frac_out=23,
    min_exp=-132,
    late_c=False,
    slow_chunk=128,
    provenance="MMA-Sim, arXiv 2511.10909",
)
_BLACKWELL = "32 products and 25 fraction bits, which MMA-Sim publishes for Blackwell"
_CPU = "float32 additions in order, as XLA's own dot on CPUs"
_LISTED = 4


class Change(NamedTuple):
    """The GEMM computed otherwise; ``number`` of things that are changed at once."""

    words: str
    number: int
    gemm: RecordedGemm
    model: InstructionModel
    plan: AccumulationPlan

    def gives(self, gemm: RecordedGemm) -> bool:
        """All bits that ``gemm`` has seen."""
        return bool(
            (bits_of(outputs_of(self.gemm, self.model, self.plan)) == bits_of(gemm.out)).all()
        )


def explanations(gemm: RecordedGemm, plan: GemmPlan, differs: np.ndarray) -> tuple[str, ...]:
    """What explains the outputs where ``differs`` [M, N] holds, in words, the plainest first.

    Of a difference that the likely changes do not explain, :func:`mmaemu_jax.identify.classify`
    tries others on a sample of the outputs; () is no explanation at all.
    """
    rows, columns = _block(differs)
    part = _cut(gemm, rows, columns)
    found: list[str] = []
    fewest = None
    for change, small in zip(_changes(gemm, plan), _changes(part, plan), strict=True):
        if fewest is not None and change.number > fewest:
            continue
        if small.gives(part) and change.gives(gemm):
            found.append(change.words)
            fewest = change.number
            if len(found) == _LISTED:
                break
    return tuple(found) or _classified(gemm, plan)


def where(differs: np.ndarray) -> str:
    """The rectangle in which all differing outputs lie; "" where that is the whole output."""
    rows, columns = (np.flatnonzero(differs.any(axis)) for axis in (1, 0))
    parts = [
        f"{name} {i[0]}" if i[0] == i[-1] else f"{name}s {i[0]} to {i[-1]}"
        for name, i, size in zip(("row", "column"), (rows, columns), differs.shape, strict=True)
        if (i[0], i[-1]) != (0, size - 1)
    ]
    return f"all in {', '.join(parts)}" if parts else ""


def _block(differs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of a few outputs, some of which differ."""
    rows = np.argsort(-differs.sum(1), kind="stable")[: _BLOCK[0]]
    columns = np.argsort(-differs[rows].sum(0), kind="stable")[: _BLOCK[1]]
    return np.sort(rows), np.sort(columns)


def _cut(gemm: RecordedGemm, rows: np.ndarray, columns: np.ndarray) -> RecordedGemm:
    return dataclasses.replace(
        gemm,
        a=gemm.a[rows],
        b=gemm.b[columns],
        out=gemm.out[np.ix_(rows, columns)],
        bias=None if gemm.bias is None else gemm.bias[columns],
    )


def _changes(gemm: RecordedGemm, plan: GemmPlan) -> Iterator[Change]:
    """Single changes, then two at once, then another GPU's arithmetic with any split."""
    yield from _library_changes(gemm, plan)
    for words, changed in _other_operands(gemm):
        yield Change(words, 1, changed, plan.model, plan.accumulation)
    preset, rule = plan.profile.arithmetic, plan.profile.split_rule
    own = SplitK(plan.decision.S, plan.decision.scheme)
    other = not gemm.use_fast_accum
    for split in _splits(rule, gemm, own):
        yield from _computed(
            gemm, preset, other, split, rule, 2, f"{_mode(other)} and {_argument(split)}"
        )
    yield Change(_CPU, 3, gemm, IEEE_FLOAT32, AccumulationPlan(chunk_k=512))
    for whose, another in _other_arithmetics():
        if another.model != preset.model:
            yield from _another_gpu(gemm, whose, another)


def _other_arithmetics() -> Iterator[tuple[str, Preset]]:
    for name in list_presets():
        yield f"the arithmetic of preset {name!r}", get_preset(name)
    yield _BLACKWELL, BLACKWELL


def _library_changes(gemm: RecordedGemm, plan: GemmPlan) -> Iterator[Change]:
    preset, rule = plan.profile.arithmetic, plan.profile.split_rule
    own = SplitK(plan.decision.S, plan.decision.scheme)
    fast = gemm.use_fast_accum
    yield from _computed(gemm, preset, not fast, own, rule, 1, _mode(not fast))
    for split in _splits(rule, gemm, own):
        yield from _computed(gemm, preset, fast, split, rule, 1, _argument(split))


def _another_gpu(gemm: RecordedGemm, whose: str, preset: Preset) -> Iterator[Change]:
    splits: list[tuple[SplitK, SplitRule | None]] = [(UNSPLIT, None)]
    if preset.slow_chunk is not None:  # else its splits were never characterised either
        for rule in (CONTIGUOUS_128, INTERLEAVED_64):
            splits += [(split, rule) for split in _splits(rule, gemm, UNSPLIT)]
    own = gemm.use_fast_accum
    for fast, (split, rule) in itertools.product((own, not own), splits):
        words = [whose]
        words += [] if fast == own else [_mode(fast)]
        words += [] if split == UNSPLIT else [_argument(split)]
        yield from _computed(gemm, preset, fast, split, rule, 3 + len(words), " and ".join(words))


def _computed(
    gemm: RecordedGemm, preset: Preset, fast: bool, split: SplitK, rule, number: int, words: str
) -> Iterator[Change]:
    """The change, unless its arithmetic was never characterised."""
    if fast or preset.slow_chunk is not None:
        plan = make_plan(fast, split, rule, preset.slow_chunk)
        yield Change(words, number, gemm, preset.model, plan)


def _splits(rule: SplitRule | None, gemm: RecordedGemm, own: SplitK) -> Iterator[SplitK]:
    """Every other split whose parts all have a tile, the unsplit GEMM first."""
    k = gemm.a.shape[1]
    every = [UNSPLIT]
    if rule is not None:
        counts = range(2, min(_MOST_SPLITS, -(-k // rule.tile_k)) + 1)
        every += [SplitK(s, scheme) for s in counts for scheme in rule.schemes]
    yield from (split for split in every if split != own)


def _mode(fast: bool) -> str:
    return f"use_fast_accum={fast}"


def _argument(split: SplitK) -> str:
    return f"splitk={spelled(split)}"


def _other_operands(gemm: RecordedGemm) -> Iterator[tuple[str, RecordedGemm]]:
    """The same call on operands that a recorder may have got wrong."""
    for name in ("a", "b"):
        codes = getattr(gemm, name)
        for fmt in FORMATS:
            if fmt.dtype != codes.dtype:
                changed = dataclasses.replace(gemm, **{name: codes.view(fmt.dtype)})
                yield f"{name} is {fmt.name}", changed
    with np.errstate(divide="ignore", over="ignore"):
        inverse = {n: np.float32(1) / getattr(gemm, n) for n in ("scale_a", "scale_b")}
        for names in (("scale_a",), ("scale_b",), ("scale_a", "scale_b")):
            changed = dataclasses.replace(gemm, **{n: inverse[n] for n in names})
            yield f"{' and '.join(names)} inverted", changed
    for name in ("scale_a", "scale_b", "scale_result"):
        if getattr(gemm, name) is not None:
            changed = dataclasses.replace(gemm, **{name: np.float32(1)})
            yield f"{name} is 1", changed
    if format_of(gemm.out.dtype) is not None and gemm.scale_result is not None:
        changed = dataclasses.replace(gemm, scale_result=np.float32(1) / gemm.scale_result)
        yield "scale_result inverted", changed
    if gemm.bias is not None:
        yield "without the bias", dataclasses.replace(gemm, bias=None)


def _classified(gemm: RecordedGemm, plan: GemmPlan) -> tuple[str, ...]:
    found = classify(
        gemm.a,
        gemm.b,
        gemm.out,
        (plan.profile.arithmetic, plan.accumulation),
        scale_a=gemm.scale_a,
        scale_b=gemm.scale_b,
        scale_result=gemm.scale_result,
        bias=gemm.bias,
    )
    best = [e for e in found.explanations if e.explained == found.differing and not e.broken]
    return tuple(e.change for e in best[:_LISTED])
