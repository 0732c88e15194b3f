"""Training with a GPU's FP8 numerics: dot_general with gradients, recipes, scaling, state."""

from mmaemu_jax.training.comparison import Comparison as Comparison
from mmaemu_jax.training.comparison import Variant as Variant
from mmaemu_jax.training.comparison import compare as compare
from mmaemu_jax.training.comparison import load_comparison as load_comparison
from mmaemu_jax.training.dot_general import fp8_dot_general as fp8_dot_general
from mmaemu_jax.training.einsum import fp8_einsum as fp8_einsum
from mmaemu_jax.training.float32_accumulation import float32_dot_general as float32_dot_general
from mmaemu_jax.training.recipe import Gemm as Gemm
from mmaemu_jax.training.recipe import Quantization as Quantization
from mmaemu_jax.training.recipe import Recipe as Recipe
from mmaemu_jax.training.recipes import flax_direct as flax_direct
from mmaemu_jax.training.recipes import get_recipe as get_recipe
from mmaemu_jax.training.recipes import list_recipes as list_recipes
from mmaemu_jax.training.recipes import te_jax as te_jax
from mmaemu_jax.training.recipes import te_pytorch as te_pytorch
from mmaemu_jax.training.recipes import torchao_tensorwise as torchao_tensorwise
from mmaemu_jax.training.scaling import Scaling as Scaling
from mmaemu_jax.training.state import Fp8State as Fp8State
from mmaemu_jax.training.state import ScaleState as ScaleState
from mmaemu_jax.training.state import apply_state as apply_state
from mmaemu_jax.training.state import init_state as init_state
