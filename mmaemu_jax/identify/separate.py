"""Operands on which two given models differ, the fewest products first."""

import dataclasses
from typing import Any

import numpy as np

from mmaemu_jax.arguments import output_dtype_argument
from mmaemu_jax.errors import message
from mmaemu_jax.identify.arguments import format_pair
from mmaemu_jax.identify.calls import Interface, Shape
from mmaemu_jax.identify.equivalence import canonical
from mmaemu_jax.identify.find_steps import predictions
from mmaemu_jax.identify.full import dense
from mmaemu_jax.identify.models import as_member
from mmaemu_jax.identify.probes import Sparse
from mmaemu_jax.identify.questions import Layout
from mmaemu_jax.identify.step_probes import cells_of, draw_steps
from mmaemu_jax.identify.triples import (
    draw_triples,
    lowest_exponent,
    small_exponent,
    triple_probes,
)

_POOLS = 12
_POOL = 384
_TRIPLES = 64


@dataclasses.dataclass(frozen=True)
class Separation:
    """Operands of dot products about which two models disagree.

    Attributes:
        a, b: float8 [P, K]; dot product i is row i of a times row i of b.
        bits_a, bits_b: the output bits of the first and the second model, [P].
    """

    a: np.ndarray
    b: np.ndarray
    bits_a: np.ndarray
    bits_b: np.ndarray


def separate(
    model_a: Any,
    model_b: Any,
    *,
    k: int = 1024,
    formats: Any = "e4m3",
    out_dtype: Any = np.float32,
    count: int = 8,
    seed: int = 0,
) -> Separation | None:
    """Operands that tell two models apart.

    Args:
        model_a, model_b: each a :class:`Member`, an :class:`Identification`, a preset (its chain
            of R9), or a preset with an accumulation plan (``(preset, plan)``).
        k: length of the dot products.
        formats: of a and b, one or a pair.
        out_dtype: the output dtype; few bits hide much.
        count: how many dot products to return at most.
        seed: of the search.

    Returns:
        The ones with the fewest nonzero products first, or None: either the two are one
        computation at this k, or none of some ten thousand candidates tells them apart.

    Raises:
        TypeError, ValueError: an argument of the wrong type or value.
    """
    if not (isinstance(k, int) and isinstance(count, int)) or min(k, count) < 1:
        raise ValueError(
            message(f"separate: k and count must be positive ints, got {k!r}, {count!r}.", ["k=64"])
        )
    members = tuple(as_member("separate", model) for model in (model_a, model_b))
    interface = Interface(
        format_pair("separate", formats), output_dtype_argument("separate", "out_dtype", out_dtype)
    )
    shape = (1, 1, k)
    if canonical(members[0], interface, [shape]) == canonical(members[1], interface, [shape]):
        return None
    rng = np.random.default_rng([seed, k])
    for draw in _DRAWS:
        found = _differing(members, interface, shape, draw(rng, members, interface, k))
        if found is not None:
            return _finish(members, interface, shape, found, count)
    return None


def _triples(rng, members, interface: Interface, k: int) -> list[Sparse]:
    if k < 3:
        return []
    layout = Layout(_TRIPLES, 1, 0)
    small = small_exponent(interface.formats, lowest_exponent(interface.out_dtype))
    return [
        triple_probes(interface.formats, draw_triples(rng, layout, k), layout, small)
        for _ in range(_POOLS)
    ]


def _steps(rng, members, interface: Interface, k: int) -> list[Sparse]:
    return [
        draw_steps(rng, interface.formats, cells_of(members[i % 2].plan, k, rng), _POOL)
        for i in range(_POOLS)
    ]


def _full(rng, members, interface: Interface, k: int) -> list[Sparse]:
    a, b = dense(rng, interface.formats, (64, 64, k))
    return [Sparse(a, b, np.arange(k))]


_DRAWS = (_triples, _steps, _full)


def _differing(members, interface: Interface, shape: Shape, pools: list[Sparse]) -> Sparse | None:
    """The pairs of the first pool that has any on which the members differ."""
    for pool in pools:
        bits = predictions(members, interface, pool, shape)
        differ = np.flatnonzero(bits[0] != bits[1])
        if len(differ):
            return pool[differ]
    return None


def _finish(members, interface: Interface, shape: Shape, pool: Sparse, count: int) -> Separation:
    products = (pool.a & 0x7F != 0) & (pool.b & 0x7F != 0)
    best = pool[np.argsort(products.sum(1), kind="stable")[:count]]
    bits = predictions(members, interface, best, shape)
    a, b = best.matrices((len(best), len(best), shape[2]))
    fmt_a, fmt_b = interface.formats
    return Separation(a.view(fmt_a.dtype), b.view(fmt_b.dtype), bits[0], bits[1])
