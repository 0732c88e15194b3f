"""Tools for tests: comparison by bits."""

from mmaemu_jax.testing.bits import BitReport as BitReport
from mmaemu_jax.testing.bits import assert_bitwise_equal as assert_bitwise_equal
from mmaemu_jax.testing.bits import bits_of as bits_of
from mmaemu_jax.testing.bits import compare_bits as compare_bits
from mmaemu_jax.testing.bits import ulp_distance as ulp_distance
