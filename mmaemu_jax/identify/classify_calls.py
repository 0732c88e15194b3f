"""Members of the family in the words of this package's calls: profile, use_fast_accum, splitk."""

import functools
import itertools
from collections.abc import Callable, Iterator

from mmaemu_jax.accumulate import SplitK
from mmaemu_jax.identify.calls import Interface, Shape
from mmaemu_jax.identify.equivalence import canonical
from mmaemu_jax.identify.member import Member
from mmaemu_jax.identify.models import UNSPLIT, profile_member
from mmaemu_jax.platforms import get_profile

#: One profile of each block step and split rule.
_PROFILES = ("hopper", "ada")
_MOST_PARTS = 32


def caller(interface: Interface, shape: Shape) -> Callable[[Member], tuple[str, ...]]:
    """A function that names the calls of scaled_mm which are a member's computation at ``shape``.

    The plainest call comes first. A member that no call computes has none.
    """

    @functools.cache
    def calls_by_form(block: int) -> dict[tuple, list[str]]:
        calls: dict[tuple, list[str]] = {}
        for call, member in _own_members():
            if member.plan.block == block and _every_part_has_a_tile(member, shape[2]):
                calls.setdefault(canonical(member, interface, [shape]), []).append(call)
        return calls

    def calls_of(member: Member) -> tuple[str, ...]:
        form = canonical(member, interface, [shape])
        return tuple(calls_by_form(member.plan.block).get(form, ()))

    return calls_of


def _every_part_has_a_tile(member: Member, k: int) -> bool:
    """A split in which a part owns nothing is the same as a smaller one, and warns (R13)."""
    split = member.plan.split
    return split.is_whole or all(split.length_of(part, k) for part in range(split.parts(k)))


@functools.cache
def _own_members() -> tuple[tuple[str, Member], ...]:
    return tuple(
        (
            f"profile={name!r}, use_fast_accum={fast}, splitk={spelled(split)}",
            profile_member(name, use_fast_accum=fast, split=split),
        )
        for parts in range(1, _MOST_PARTS + 1)
        for name, fast in itertools.product(_PROFILES, (True, False))
        for split in _splits(name, parts)
    )


def _splits(profile: str, parts: int) -> Iterator[SplitK]:
    rule = get_profile(profile).split_rule
    if parts == 1:
        yield UNSPLIT
    elif rule is not None:
        yield from (SplitK(parts, scheme) for scheme in rule.schemes)


def spelled(split: SplitK) -> str:
    """The ``splitk`` argument that says it."""
    return "1" if split == UNSPLIT else f"({split.S}, {split.scheme!r})"
