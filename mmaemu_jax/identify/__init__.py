"""Which arithmetic is this FP8 GEMM? Answered from its output bits alone."""

from mmaemu_jax.identify.family import Family as Family
from mmaemu_jax.identify.family import family_of as family_of
from mmaemu_jax.identify.member import Arithmetic as Arithmetic
from mmaemu_jax.identify.member import Epilogue as Epilogue
from mmaemu_jax.identify.member import Member as Member
from mmaemu_jax.identify.member import member_of as member_of
from mmaemu_jax.identify.plan import Parts as Parts
from mmaemu_jax.identify.plan import Plan as Plan
from mmaemu_jax.identify.report import EquivalenceClass as EquivalenceClass
from mmaemu_jax.identify.report import Identification as Identification
from mmaemu_jax.identify.report import Witness as Witness
from mmaemu_jax.identify.search import identify as identify
from mmaemu_jax.identify.shrink import Counterexample as Counterexample
