"""The cells of the agreement matrix: models x plans x format pairs, with operands and outputs."""

import dataclasses
import functools
import itertools

import ml_dtypes
import numpy as np
from gemms import FORMAT_PAIRS

from mmaemu_jax import instruction
from mmaemu_jax.accumulate import ONE_CHAIN, AccumulationPlan
from mmaemu_jax.formats import E4M3, E5M2, Fp8Format
from mmaemu_jax.instruction import InstructionModel
from mmaemu_jax.testing import families, hard_scales, operands

#: Presets, then models that the SIMD kernels hand to the portable one, by different numbers.
MODELS = {
    "ada": instruction.ADA.model,
    "hopper": instruction.HOPPER.model,
    "b200": instruction.B200_MMA_SYNC.model,
    "tiny": InstructionModel(nfma=1, frac=1, frac_out=1, min_exp=-1000, late_c=False),
    "coarse": InstructionModel(nfma=4, frac=7, frac_out=10, min_exp=-10, late_c=False),
    "fine": InstructionModel(nfma=32, frac=30, frac_out=23, min_exp=-132, late_c=False),
    "late": InstructionModel(nfma=24, frac=9, frac_out=6, min_exp=-6, late_c=True),
    "large": InstructionModel(nfma=130, frac=40, frac_out=23, min_exp=-133, late_c=True),
}
#: The presets with slow accumulation and splits of their own, which SIMD kernels run.
VALIDATED = ("ada", "hopper")

#: Plans and the shape (M, N, K) they are tried on: ragged K, rows and columns, empty splits.
PLANS = {
    "fast": (ONE_CHAIN, (3, 37, 200)),
    "fast, short": (ONE_CHAIN, (5, 3, 7)),
    "slow": (AccumulationPlan(128), (3, 37, 413)),
    "slow, whole": (AccumulationPlan(128), (2, 64, 256)),
    "serial 3": (AccumulationPlan(0, 3, 64, True), (2, 33, 457)),
    "serial 2, slow": (AccumulationPlan(128, 2, 64, True), (3, 31, 457)),
    "pairwise 5": (AccumulationPlan(0, 5, 64, True, True), (2, 17, 705)),
    "pairwise 4, slow": (AccumulationPlan(128, 4, 64, True, True), (2, 19, 670)),
    "pairwise 3": (AccumulationPlan(0, 3, 64, True, True), (3, 35, 200)),
    "pairwise 2, slow": (AccumulationPlan(128, 2, 64, True, True), (1, 66, 130)),
    "serial 6, empty": (AccumulationPlan(128, 6, 64, True), (3, 18, 133)),
    "pairwise 7, empty": (AccumulationPlan(0, 7, 64, True, True), (3, 18, 150)),
    "contiguous 3": (AccumulationPlan(0, 3, 128), (2, 21, 562)),
    "contiguous 2, slow": (AccumulationPlan(128, 2, 128), (2, 21, 528)),
    "contiguous 5, empty": (AccumulationPlan(128, 5, 128), (2, 18, 643)),
    "odd numbers": (AccumulationPlan(48, 3, 40, True), (3, 34, 333)),
}


@dataclasses.dataclass(frozen=True)
class Output:
    """What is asked of the epilogue. The layout of b rides along."""

    dtype: np.dtype
    scale_result: bool
    b_layout: str

    def __str__(self) -> str:
        return f"{self.dtype}{' scaled' * self.scale_result} ({self.b_layout})"


OUTPUTS = tuple(
    Output(np.dtype(dtype), scale_result, b_layout)
    for dtype, scale_result, b_layout in (
        (np.float32, False, "nk"),
        (np.float32, False, "kn"),
        (ml_dtypes.bfloat16, False, "kn"),
        (np.float16, False, "nk"),
        (ml_dtypes.bfloat16, True, "nk"),  # ignored there (R18)
        (E4M3.dtype, False, "nk"),
        (E4M3.dtype, True, "kn"),
        (E5M2.dtype, False, "kn"),
        (E5M2.dtype, True, "nk"),
    )
)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One place of the matrix."""

    model_name: str
    plan_name: str
    fmt_a: Fp8Format
    fmt_b: Fp8Format

    @property
    def model(self) -> InstructionModel:
        return MODELS[self.model_name]

    @property
    def plan(self) -> AccumulationPlan:
        return PLANS[self.plan_name][0]

    @property
    def formats(self) -> str:
        return f"{self.fmt_a.name}x{self.fmt_b.name}"

    def __str__(self) -> str:
        return f"{self.model_name}-{self.plan_name}-{self.formats}"

    @property
    def _place(self) -> tuple[int, int, int]:
        pair = FORMAT_PAIRS.index((self.fmt_a, self.fmt_b))
        return list(MODELS).index(self.model_name), list(PLANS).index(self.plan_name), pair

    @property
    def diagonal(self) -> bool:
        """One format pair of each model and plan, all pairs in turn."""
        return sum(self._place) % len(FORMAT_PAIRS) == 0

    def outputs(self, count: int) -> tuple[Output, ...]:
        """``count`` of OUTPUTS, others for the next plan."""
        model, plan, _ = self._place
        return tuple(OUTPUTS[(model + plan + i) % len(OUTPUTS)] for i in range(count))


ALL = tuple(
    Cell(model, plan, *pair) for model, plan, pair in itertools.product(MODELS, PLANS, FORMAT_PAIRS)
)
#: For who computes a cell in milliseconds: validated presets with every format pair, others with
#: one.
EVERY = tuple(cell for cell in ALL if cell.model_name in VALIDATED or cell.diagonal)
#: For who takes a second to compile or compute: one format pair for every plan of the validated
#: presets, and for a sixth of the others'.
COSTLY = tuple(
    cell
    for i, cell in enumerate(cell for cell in EVERY if cell.diagonal)
    if cell.model_name in VALIDATED or i % 6 == 0
)


class Problem:
    """Operands of one cell: a [B, M, K] and b [B, N, K] of every family, twice, in the plan's
    shape unless given.

    The first half of the batch has scales that leave an output something to round, the second
    half hard ones.
    """

    def __init__(self, cell: Cell, seed: int, shape: tuple[int, int, int] | None = None):
        self.cell = cell
        drawn = [(name, name != "special_values") for name in families()]
        drawn.append(("uniform", False))
        shape = shape or PLANS[cell.plan_name][1]
        pairs = [
            operands(name, cell.fmt_a, cell.fmt_b, *shape, seed + i, finite)
            for i, (name, finite) in enumerate(drawn)
        ]
        a, b = (np.stack(2 * matrices) for matrices in map(list, zip(*pairs, strict=True)))
        self.a, self.b = a.view(cell.fmt_a.dtype), b.view(cell.fmt_b.dtype)
        hard = np.array(hard_scales(), np.uint32).view(np.float32)
        self._hard = np.random.default_rng(seed).choice(hard, (3, len(pairs)))

    @functools.cached_property
    def _magnitudes(self) -> np.ndarray:
        """Typical size of a finite sum, per family."""
        half = len(self.a) // 2
        a, b = (x[:half].astype(np.float64) for x in (self.a, self.b))
        a, b = (np.where(np.isfinite(x), x, 0) for x in (a, b))
        rms = np.sqrt(np.square(np.einsum("bmk,bnk->bmn", a, b)).mean((1, 2)))
        return np.maximum(rms, 2.0**-60)

    def scales(self, output: Output) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """scale_a, scale_b and scale_result, each [B] or None."""
        ones = np.ones(len(self.a) // 2, np.float32)
        first = [ones, ones, ones * np.float32(0.7)]
        if output.dtype != np.float32:  # sums around 30; float32 shows the accumulators themselves
            first[0] = (31.4 / self._magnitudes).astype(np.float32)
        scale_a, scale_b, scale_result = np.concatenate([first, self._hard], axis=1)
        return scale_a, scale_b, scale_result if output.scale_result else None
