"""Which arithmetic is this FP8 GEMM? Answered from its output bits alone.

:func:`identify` (also ``mmaemu_jax.identify``) asks a black box; :func:`separate` finds operands on
which two models differ, :func:`classify` explains outputs that are not the expected ones.
"""

from mmaemu_jax.identify.calls import Interface as Interface
from mmaemu_jax.identify.classify import Classification as Classification
from mmaemu_jax.identify.classify import Explanation as Explanation
from mmaemu_jax.identify.classify import classify as classify
from mmaemu_jax.identify.family import Family as Family
from mmaemu_jax.identify.family import family_of as family_of
from mmaemu_jax.identify.member import Arithmetic as Arithmetic
from mmaemu_jax.identify.member import Epilogue as Epilogue
from mmaemu_jax.identify.member import Member as Member
from mmaemu_jax.identify.member import member_of as member_of
from mmaemu_jax.identify.models import profile_member as profile_member
from mmaemu_jax.identify.native import native_dot as native_dot
from mmaemu_jax.identify.parts import Parts as Parts
from mmaemu_jax.identify.plan import Plan as Plan
from mmaemu_jax.identify.report import EquivalenceClass as EquivalenceClass
from mmaemu_jax.identify.report import Identification as Identification
from mmaemu_jax.identify.report import Witness as Witness
from mmaemu_jax.identify.search import DEFAULT_SHAPES as DEFAULT_SHAPES
from mmaemu_jax.identify.search import identify as identify
from mmaemu_jax.identify.separate import Separation as Separation
from mmaemu_jax.identify.separate import separate as separate
from mmaemu_jax.identify.shrink import Counterexample as Counterexample
