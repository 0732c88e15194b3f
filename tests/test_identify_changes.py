"""identify never misses a change of a single parameter."""

import ml_dtypes
import numpy as np
import pytest
from black_boxes import member_gemm

import mmaemu_jax as mj
from mmaemu_jax.accumulate import SplitK
from mmaemu_jax.formats import E4M3
from mmaemu_jax.identify import Interface, Member, family_of, profile_member
from mmaemu_jax.identify.conclude import neighbours
from mmaemu_jax.identify.equivalence import canonical

SHAPES = [(48, 48, 512)]
INTERFACES = {
    str(dtype): Interface((E4M3, E4M3), dtype)
    for dtype in (np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16))
}
MEMBERS = {
    "hopper slow": profile_member("hopper", use_fast_accum=False),
    "hopper split": profile_member("hopper", use_fast_accum=True, split=SplitK(3, "contiguous")),
    "ada fast": profile_member("ada", use_fast_accum=True),
    "ada pairwise": profile_member("ada", use_fast_accum=False, split=SplitK(5, "pairwise")),
}


def changes(member: Member, interface: Interface) -> dict[str, Member]:
    """By what changes: every member one parameter away that some operands tell apart."""
    key, family = canonical(member, interface, SHAPES), family_of(interface)
    return {
        change: other
        for change, other in neighbours(member, family)
        if other in family and canonical(other, interface, SHAPES) != key
    }


def check(member: Member, other: Member, interface: Interface) -> None:
    """``other``'s GEMM is not taken for ``member``'s."""
    found = mj.identify(
        member_gemm(other, interface),
        formats=interface.formats,
        out_dtype=interface.out_dtype,
        shapes=SHAPES,
    )
    assert found.verdict == "identified", str(found)
    keys = {canonical(c.members[0], interface, found.shapes) for c in found.classes}
    assert canonical(other, interface, SHAPES) in keys, str(found)
    assert canonical(member, interface, SHAPES) not in keys, str(found)


CASES = [
    (name, dtype, change)
    for dtype, interface in INTERFACES.items()
    for name, member in MEMBERS.items()
    for change in changes(member, interface)
]
#: 13 to 14 bits and restarts of 128 to 64 always run, and a few others.
ALWAYS = [
    ("hopper slow", "bfloat16", "14 bits truncate"),
    ("hopper slow", "bfloat16", "restart every 64"),
    *CASES[::60],
]


@pytest.mark.parametrize(
    ("name", "dtype", "change"),
    [pytest.param(*c, marks=[pytest.mark.exhaustive] * (c not in ALWAYS)) for c in CASES],
)
def test_a_change_of_a_profile(name, dtype, change):
    member, interface = MEMBERS[name], INTERFACES[dtype]
    check(member, changes(member, interface)[change], interface)


def test_what_always_runs_is_there():
    assert set(ALWAYS) <= set(CASES)
    assert len(CASES) > 300


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("dtype", INTERFACES)
def test_a_change_of_a_drawn_member(dtype, seed):
    interface = INTERFACES[dtype]
    rng = np.random.default_rng([seed, 10])
    member = family_of(interface).draw(rng)
    others = list(changes(member, interface).values())
    for index in rng.permutation(len(others))[:8]:
        check(member, others[int(index)], interface)
