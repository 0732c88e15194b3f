"""Tools for tests: comparison by bits, and adversarial operands."""

from mmaemu_jax.testing.bits import BitReport as BitReport
from mmaemu_jax.testing.bits import assert_bitwise_equal as assert_bitwise_equal
from mmaemu_jax.testing.bits import bits_of as bits_of
from mmaemu_jax.testing.bits import compare_bits as compare_bits
from mmaemu_jax.testing.bits import ulp_distance as ulp_distance
from mmaemu_jax.testing.cases import Case as Case
from mmaemu_jax.testing.cases import cases as cases
from mmaemu_jax.testing.cases import families as families
from mmaemu_jax.testing.cases import hard_scales as hard_scales
from mmaemu_jax.testing.cases import operands as operands
