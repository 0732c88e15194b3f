"""What the property tests draw, and how many examples a run tries.

Operands are a family of mmaemu_jax.testing and a seed, or free codes, which shrink to zeros. The
profiles "ci" and "exhaustive" of conftest.py say how many examples; a costly test takes a share.
"""

import dataclasses

import hypothesis
import numpy as np
from gemms import FORMAT_PAIRS
from hypothesis import strategies as st

import mmaemu_jax as mj
from mmaemu_jax.accumulate import AccumulationPlan, SplitK, make_plan
from mmaemu_jax.epilogue import OUTPUT_DTYPES
from mmaemu_jax.formats import Fp8Format
from mmaemu_jax.instruction import InstructionModel
from mmaemu_jax.testing import families, hard_scales, operands

#: One profile of each preset, in the order of list_presets().
PROFILES = ("ada", "hopper", "b200-mma-sync-experimental")

seeds = st.integers(0, 2**20)
format_pairs = st.sampled_from(FORMAT_PAIRS)
output_dtypes = st.sampled_from(OUTPUT_DTYPES)
kernels = st.sampled_from(
    [s.name for s in mj.backends_status() if s.name.startswith("cpu:") and s.usable]
)


def share(part: float) -> hypothesis.settings:
    """Decorator: this part of the profile's examples, at least one."""
    all_of_them = hypothesis.settings().max_examples
    return hypothesis.settings(max_examples=max(1, round(all_of_them * part)))


@st.composite
def free_codes(draw, fmt: Fp8Format, shape: tuple[int, ...], finite: bool = True) -> np.ndarray:
    """Any codes; NaN and Inf become +0 with ``finite``."""
    size = int(np.prod(shape))
    codes = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), np.uint8).reshape(shape)
    codes = np.where(np.isfinite(fmt.values)[codes], codes, np.uint8(0)) if finite else codes
    return codes.view(fmt.dtype)


def uneven_tiles(random: np.random.Generator, fmt: Fp8Format, rows: int, k: int) -> np.ndarray:
    """Codes of one exponent in each 64-tile of K, large in few: sums over splits have to round."""
    exponents = random.choice([fmt.emax - 1, (fmt.emin + fmt.emax) // 2, fmt.emin], k // 64 + 1)
    fields = random.integers(0, 256, (rows, k)) & (0x80 | (1 << fmt.mantissa_bits) - 1)
    biased = np.repeat(exponents, 64)[:k] + fmt.bias
    return (fields | biased << fmt.mantissa_bits).astype(np.uint8).view(fmt.dtype)


@st.composite
def matrices(
    draw, m: int, n: int, k: int, fmt_a: Fp8Format, fmt_b: Fp8Format, finite: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """a [M, K] and b [N, K], of a family of mmaemu_jax.testing or of one of the two above."""
    family = draw(st.sampled_from((*families()[::-1], "uneven tiles", "free")))
    if family == "uneven tiles":
        random = np.random.default_rng(draw(seeds))
        return uneven_tiles(random, fmt_a, m, k), uneven_tiles(random, fmt_b, n, k)
    if family == "free":
        shapes = ((fmt_a, (m, k)), (fmt_b, (n, k)))
        a, b = (draw(free_codes(fmt, shape, finite)) for fmt, shape in shapes)
        return a, b
    a, b = operands(family, fmt_a, fmt_b, m, n, k, draw(seeds), finite)
    return a.view(fmt_a.dtype), b.view(fmt_b.dtype)


def float32_of(bits: int) -> np.float32:
    """The float32 of these bits."""
    return np.uint32(bits).view(np.float32)


#: Any float32, and often one that breaks an epilogue.
scales = (st.sampled_from(hard_scales()) | st.integers(0, 2**32 - 1)).map(float32_of)
#: Positive float32 between 2^-10 and 2^10.
moderate_scales = st.integers((127 - 10) << 23, (127 + 10) << 23).map(float32_of)


@dataclasses.dataclass(frozen=True)
class Setting:
    """How a profile accumulates one GEMM; ``options`` are those of the public functions."""

    profile: str
    use_fast_accum: bool
    splitk: tuple[int, str]

    @property
    def options(self) -> dict:
        return dataclasses.asdict(self)

    @property
    def model(self) -> InstructionModel:
        return mj.get_profile(self.profile).arithmetic.model

    @property
    def plan(self) -> AccumulationPlan:
        profile = mj.get_profile(self.profile)
        chunk = profile.arithmetic.slow_chunk
        return make_plan(self.use_fast_accum, SplitK(*self.splitk), profile.split_rule, chunk)


@st.composite
def gemm_settings(draw, profiles: tuple[str, ...] = PROFILES, max_splits: int = 7) -> Setting:
    """Fast or slow, split or not, as far as the profile models it."""
    profile = mj.get_profile(draw(st.sampled_from(profiles)))
    if not profile.splits:
        return Setting(profile.name, True, (1, "none"))
    fast, splits = draw(st.booleans()), draw(st.integers(1, max_splits))
    assert profile.split_rule is not None
    scheme = draw(st.sampled_from(profile.split_rule.schemes)) if splits > 1 else "none"
    return Setting(profile.name, fast, (splits, scheme))


@st.composite
def models(draw) -> InstructionModel:
    """Numbers of a user's own preset, within what exact fractions compute quickly."""
    return InstructionModel(
        nfma=draw(st.integers(1, 48)),
        frac=draw(st.integers(1, 40)),
        frac_out=draw(st.integers(1, 23)),
        min_exp=draw(st.integers(-150, 20)),
        late_c=draw(st.booleans()),
    )
