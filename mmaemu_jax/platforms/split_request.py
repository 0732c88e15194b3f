"""The ``splitk`` argument: which values it takes, and what they mean on a profile."""

import dataclasses
import operator

from mmaemu_jax.accumulate import MAX_SPLITS, SplitK
from mmaemu_jax.arguments import type_name, unknown_option
from mmaemu_jax.errors import message
from mmaemu_jax.platforms.profile import Profile

#: What ``splitk=`` takes: one of :data:`MODES`, 1, (S, scheme) or a SplitK.
SplitArgument = str | int | tuple[int, str] | SplitK

#: Requests by name: look the split up, without inference, else assume S = 1, ask cuBLASLt.
MODES = ("auto", "table", "auto_or_unsplit", "live")


@dataclasses.dataclass(frozen=True)
class SplitRequest:
    """A checked ``splitk`` argument: one of :data:`MODES`, or "explicit" with its split."""

    mode: str
    split: SplitK | None = None


def explicit_forms(profile: Profile) -> str:
    """How a caller of ``profile`` writes an explicit split."""
    schemes = profile.split_rule.schemes if profile.split_rule is not None else ()
    return ", ".join(["splitk=1", *(f"splitk=(S, {scheme!r})" for scheme in schemes)])


def parse_splitk(function: str, splitk, profile: Profile) -> SplitRequest:
    """``splitk`` as a request; S = 1 always gets the scheme "none".

    Raises:
        TypeError: not a name, 1, an (S, scheme) pair or a SplitK.
        ValueError: an unknown name, S < 1, or a scheme that is not the profile's own.
    """
    if isinstance(splitk, str):
        if splitk not in MODES:
            way_out = f"pass {explicit_forms(profile)}"
            raise unknown_option(function, "splitk", splitk, MODES, way_out)
        return SplitRequest(splitk)
    if isinstance(splitk, tuple) and len(splitk) == 2:
        splitk = SplitK(*splitk)
    if isinstance(splitk, SplitK):
        return SplitRequest("explicit", _checked(function, splitk, profile))
    splits = _integer(splitk)
    if splits is None:
        raise TypeError(
            f"{function}: splitk must be a name, 1, an (S, scheme) tuple or a mmaemu_jax.SplitK, "
            f"got {splitk!r} of type {type_name(splitk)}. {_ways_out(profile)}"
        )
    if splits > 1:
        raise ValueError(
            f"{function}: splitk={splits} needs the scheme that combines the parts. "
            f"{_ways_out(profile)}"
        )
    return SplitRequest("explicit", _checked(function, SplitK(splits), profile))


def _integer(value) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _checked(function: str, split: SplitK, profile: Profile) -> SplitK:
    splits = _integer(split.S)
    if splits is None or not isinstance(split.scheme, str):
        raise TypeError(
            f"{function}: a split is (S, scheme), an int and a str, got "
            f"({split.S!r}, {split.scheme!r}). {_ways_out(profile)}"
        )
    if not 1 <= splits <= MAX_SPLITS:
        raise ValueError(
            f"{function}: S must be in 1..{MAX_SPLITS}, got {splits}. {_ways_out(profile)}"
        )
    rule = profile.split_rule
    if splits == 1 and split.scheme == "none":
        return SplitK(1)
    if rule is not None and split.scheme not in rule.schemes:
        raise ValueError(
            f"{function}: scheme {split.scheme!r} with S = {splits} is not one of profile "
            f"{profile.name!r} (R12, R13). {_ways_out(profile)}"
        )
    return SplitK(splits, split.scheme if splits > 1 else "none")


def _ways_out(profile: Profile) -> str:
    names = ", ".join(f"splitk={mode!r}" for mode in MODES)
    return message("", [f"pass {explicit_forms(profile)}", f"pass {names}"]).strip()
