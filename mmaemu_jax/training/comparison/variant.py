"""A variant: the arithmetic that one of the compared runs uses."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from mmaemu_jax.errors import message
from mmaemu_jax.platforms import Profile, get_profile

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclasses.dataclass(frozen=True)
class Variant:
    """What is handed to the train step, and what a reader of the report should know of it.

    Attributes:
        numerics: third argument of the train step: a dot_general, a recipe, anything. It is fixed
            when the step is traced. None may stand for the framework's own arithmetic.
        description: one sentence for the report.
        profile: the profile whose bits the variant's GEMMs have, looked up for the report's table
            of split-K decisions; None leaves the variant out of it.
        control: it differs from the reference by rounding noise alone, and so is the scale that the
            report measures the others with.
        device: where the variant runs, such as ``jax.devices("gpu")[0]``; None is JAX's default.
    """

    numerics: Any
    description: str = ""
    profile: str | Profile | None = None
    control: bool = False
    device: Any = None


def variants_argument(variants) -> dict[str, Variant]:
    """``variants`` with every value a :class:`Variant`.

    Raises:
        TypeError: not a mapping from names.
        ValueError: fewer than two, names that are no file names, an unknown profile.
    """
    if not isinstance(variants, Mapping) or not all(isinstance(name, str) for name in variants):
        raise TypeError(
            message(
                f"compare: variants must be a dict from names to numerics, got {variants!r}.",
                ['pass for example {"xla": jax.lax.dot_general, "hopper": my_dot_general}'],
            )
        )
    if len(variants) < 2:
        raise ValueError(f"compare: at least two variants are compared, got {list(variants)}.")
    for name in variants:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"compare: the variant name {name!r} must consist of letters, digits and . _ -"
            )
    found = {n: v if isinstance(v, Variant) else Variant(v) for n, v in variants.items()}
    for variant in found.values():
        if variant.profile is not None:
            get_profile(variant.profile)
    return found
