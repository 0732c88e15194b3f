"""What the benchmark measures: one GEMM of one arithmetic by one backend, as data."""

import dataclasses
import itertools
from collections.abc import Iterable
from typing import Any

from mmaemu_jax.accumulate import SplitK
from mmaemu_jax.platforms import get_profile

#: Shape whose time is all overhead of the call.
TINY_SHAPE = (16, 16, 32)

_UNSPLIT = SplitK(1)


@dataclasses.dataclass(frozen=True)
class Mode:
    """How K is accumulated: fast or slow, and its split (S, scheme)."""

    use_fast_accum: bool = True
    split: SplitK = _UNSPLIT

    def __str__(self) -> str:
        name = "fast" if self.use_fast_accum else "slow"
        return name if self.split.S == 1 else f"{name} S={self.split.S} {self.split.scheme}"


@dataclasses.dataclass(frozen=True)
class BenchCase:
    """One row.

    Attributes:
        shape: (M, N, K).
        formats: of input and mat2, such as ("e4m3", "e5m2").
        profile, backend: as in scaled_mm.
        mode: accumulation.
        out_dtype: name of the output dtype.
        weights: "nk" (an [N, K] array used as ``w.T``) or "kn" (a [K, N] array).
    """

    shape: tuple[int, int, int]
    formats: tuple[str, str]
    profile: str
    mode: Mode
    out_dtype: str
    backend: str
    weights: str = "nk"

    @property
    def macs(self) -> int:
        m, n, k = self.shape
        return m * n * k

    @property
    def label(self) -> str:
        """Letters, digits and underscores only: it names scopes and folders."""
        shape = "x".join(map(str, self.shape))
        parts = (self.profile, *self.formats, self.mode, shape, self.out_dtype, self.weights)
        text = "_".join([*map(str, parts), self.backend])
        return "".join(c if c.isalnum() else "_" for c in text)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "BenchCase":
        """The case that :meth:`to_dict` wrote, also after a trip through JSON."""
        mode = values["mode"]
        return cls(
            **{
                **values,
                "shape": tuple(values["shape"]),
                "formats": tuple(values["formats"]),
                "mode": Mode(mode["use_fast_accum"], SplitK(**mode["split"])),
            }
        )


def parse_mode(text: str, profile: str) -> Mode:
    """ "fast", "slow", "fast,S" (the profile's first scheme) or "fast,S,scheme".

    Raises:
        ValueError: anything else, or a split where the profile has none.
    """
    name, *split = text.split(",")
    if name not in ("fast", "slow") or len(split) > 2:
        raise ValueError(
            f"bench: --mode must be fast or slow, or either with ,S or ,S,scheme, got {text!r}."
        )
    if not split:
        return Mode(name == "fast")
    rule = get_profile(profile).split_rule
    if rule is None:
        raise ValueError(f"bench: profile {profile!r} has no split rule, so --mode {text} is none.")
    scheme = split[1] if len(split) == 2 else rule.schemes[0]
    if not split[0].isdecimal() or int(split[0]) < 2 or scheme not in rule.schemes:
        raise ValueError(
            f"bench: --mode {text}: S must be an int from 2 and the scheme of profile {profile!r} "
            f"one of {', '.join(rule.schemes)}."
        )
    return Mode(name == "fast", SplitK(int(split[0]), scheme))


#: (profile, formats, mode) measured where none of the three is given.
DEFAULT_ARITHMETICS = (
    ("hopper", ("e4m3", "e4m3"), "fast"),
    ("hopper", ("e4m3", "e4m3"), "slow"),
    ("hopper", ("e4m3", "e5m2"), "fast"),
    ("hopper", ("e4m3", "e4m3"), "fast,4"),
    ("ada", ("e4m3", "e4m3"), "fast"),
    ("ada", ("e4m3", "e4m3"), "slow"),
)
DEFAULT_SHAPES = ((2048, 1024, 1920), (1024, 1024, 4096))
QUICK_SHAPES = ((256, 256, 512),)


def make_cases(
    *,
    shapes: Iterable[tuple[int, int, int]],
    profiles: Iterable[str] = (),
    formats: Iterable[tuple[str, str]] = (),
    modes: Iterable[str] = (),
    backends: Iterable[str] = (),
    out_dtype: str = "bfloat16",
    weights: str = "nk",
) -> list[BenchCase]:
    """The product of what is given; without profiles, formats and modes the default list.

    Raises:
        ValueError: an unknown profile, or a mode that a profile does not have.
    """
    profiles, formats, modes = tuple(profiles), tuple(formats), tuple(modes)
    if profiles or formats or modes:
        arithmetics = itertools.product(
            profiles or ("hopper",), formats or (("e4m3", "e4m3"),), modes or ("fast",)
        )
    else:
        arithmetics = iter(DEFAULT_ARITHMETICS)
    backends = tuple(backends) or ("auto",)
    return [
        BenchCase(shape, pair, profile, parse_mode(mode, profile), out_dtype, backend, weights)
        for shape, (profile, pair, mode), backend in itertools.product(
            tuple(shapes), tuple(arithmetics), backends
        )
    ]
