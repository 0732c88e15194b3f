"""What a comparison is asked to do, checked before anything runs."""

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any

from mmaemu_jax.arguments import unknown_option
from mmaemu_jax.errors import message
from mmaemu_jax.training.comparison.variant import Variant, variants_argument


@dataclasses.dataclass(frozen=True)
class Job:
    """A checked comparison; the fields are the arguments of ``compare``."""

    train_step: Callable[[Any, Any, Any], tuple[Any, Any]]
    variants: dict[str, Variant]
    init: Callable[[int], Any]
    batches: Callable[[int, int], Any]
    steps: int
    seeds: tuple[int, ...]
    reference: str
    loss: Callable[[Any, Any, Any], Any] | None
    params: Callable[[Any], Any]
    #: Single GEMMs are compared: there is a loss, and every variant's numerics is a dot_general.
    gemms: bool
    sites: tuple[str, ...] | None
    probe_steps: tuple[int, ...]
    save_every: int

    @property
    def probe_seed(self) -> int:
        """The seed of the run whose parameters are probed."""
        return self.seeds[0]

    def facts(self) -> dict[str, Any]:
        """What a directory must agree with before a run continues in it."""
        return {
            "variants": {name: v.description for name, v in self.variants.items()},
            "controls": [name for name, v in self.variants.items() if v.control],
            "reference": self.reference,
            "steps": self.steps,
            "seeds": list(self.seeds),
            "gemms": self.gemms,
            "probe_steps": list(self.probe_steps),
        }


def make_job(
    train_step,
    variants,
    *,
    init,
    batches,
    steps,
    seeds: Sequence[int],
    reference: str | None,
    loss,
    params,
    gemms: bool,
    sites: Sequence[str] | None,
    probe_steps: Sequence[int] | None,
    save_every: int,
) -> Job:
    """The arguments of ``compare`` as a :class:`Job`.

    Raises:
        TypeError, ValueError: as ``compare`` documents.
    """
    functions = {"train_step": train_step, "init": init, "batches": batches, "params": params}
    for name, value in functions.items():
        if not callable(value):
            raise TypeError(f"compare: {name} must be a function, got {value!r}.")
    if loss is not None and not callable(loss):
        raise TypeError(f"compare: loss must be a function or None, got {loss!r}.")
    known = variants_argument(variants)
    reference = next(iter(known)) if reference is None else reference
    if reference not in known:
        raise unknown_option("compare", "reference", reference, known)
    steps = _count("steps", steps)
    if probe_steps is None:
        probe_steps = sorted({0, steps // 2, steps - 1})
    probed = _probe_steps(probe_steps, steps)
    return Job(
        train_step,
        known,
        init,
        batches,
        steps,
        _seeds(seeds),
        reference,
        loss,
        params,
        gemms and loss is not None and all(callable(v.numerics) for v in known.values()),
        None if sites is None else tuple(sites),
        () if loss is None else probed,
        _count("save_every", save_every),
    )


def _integer(name: str, value) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"compare: {name} must be an int, got {value!r}.") from None


def _count(name: str, value) -> int:
    value = _integer(name, value)
    if value < 1:
        raise ValueError(f"compare: {name} must be positive, got {value}.")
    return value


def _seeds(seeds) -> tuple[int, ...]:
    found = tuple(_integer("a seed", seed) for seed in seeds)
    if not found or min(found) < 0 or len(set(found)) < len(found):
        raise ValueError(
            message(
                f"compare: seeds must be different and not negative, at least one, got {found}.",
                ["pass for example seeds=(0, 1, 2)"],
            )
        )
    return found


def _probe_steps(probe_steps, steps: int) -> tuple[int, ...]:
    found = tuple(sorted({_integer("a probe step", step) for step in probe_steps}))
    if any(not 0 <= step < steps for step in found):
        raise ValueError(
            f"compare: probe_steps must lie in 0..{steps - 1} (steps - 1), got {found}."
        )
    return found
