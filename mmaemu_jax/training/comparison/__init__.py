"""One training run under several arithmetics: what that changes, measured and reported."""

from mmaemu_jax.training.comparison.compare import Comparison as Comparison
from mmaemu_jax.training.comparison.compare import compare as compare
from mmaemu_jax.training.comparison.compare import load_comparison as load_comparison
from mmaemu_jax.training.comparison.named_variants import DEFAULT_VARIANTS as DEFAULT_VARIANTS
from mmaemu_jax.training.comparison.named_variants import VARIANTS as VARIANTS
from mmaemu_jax.training.comparison.variant import Variant as Variant
