"""Platforms: profiles (whose bits) and how their split-K decisions are found."""

from mmaemu_jax.platforms.profile import Profile as Profile
from mmaemu_jax.platforms.profile_file import read_profile as read_profile
from mmaemu_jax.platforms.profile_file import write_profile as write_profile
from mmaemu_jax.platforms.shipped_profiles import get_profile as get_profile
from mmaemu_jax.platforms.shipped_profiles import list_profiles as list_profiles
from mmaemu_jax.platforms.shipped_profiles import profile_argument as profile_argument
from mmaemu_jax.platforms.split_decision import SplitDecision as SplitDecision
from mmaemu_jax.platforms.split_decision import SplitQuery as SplitQuery
from mmaemu_jax.platforms.split_request import SplitArgument as SplitArgument
from mmaemu_jax.platforms.split_request import SplitRequest as SplitRequest
from mmaemu_jax.platforms.split_request import parse_splitk as parse_splitk
from mmaemu_jax.platforms.split_resolver import Resolution as Resolution
from mmaemu_jax.platforms.split_resolver import resolve as resolve
from mmaemu_jax.platforms.split_resolver import resolve_splitk as resolve_splitk
