"""Numerics studies: what an accumulation does to a dot product, as functions of K and data."""

from mmaemu_jax.studies.distributions import DISTRIBUTIONS as DISTRIBUTIONS
from mmaemu_jax.studies.error_by_k import ACCUMULATIONS as ACCUMULATIONS
from mmaemu_jax.studies.error_by_k import AccumulationError as AccumulationError
from mmaemu_jax.studies.error_by_k import error_by_k as error_by_k
from mmaemu_jax.studies.error_by_k import exact_product as exact_product
from mmaemu_jax.studies.plots import plot_error_by_k as plot_error_by_k
from mmaemu_jax.studies.retained_bits import RetainedBits as RetainedBits
from mmaemu_jax.studies.retained_bits import retained_bits as retained_bits
