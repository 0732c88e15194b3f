"""Scaling: each field of the rule from amax to scale, against numpy, and its limits."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from mmaemu_jax.formats import E4M3
from mmaemu_jax.testing import assert_bitwise_equal
from mmaemu_jax.training import Quantization, ScaleState, Scaling
from mmaemu_jax.training.cast import cast
from mmaemu_jax.training.scaling import amax_bits, history_amax, scale_bits

LARGEST = 448.0
#: Floors on both sides of the nearest float32 where 448 / floor is another float32 than
#: 448 / nearest, and one that is a float32.
FLOORS = (1.000000671e-12, 1.000000721e-12, 0.25)
NAN, INF = 0x7FC00000, 0x7F800000


def bits(x) -> np.ndarray:
    return np.asarray(x, np.float32).view(np.uint32)


def neighbours(value: float) -> list[int]:
    nearest = int(bits(value))
    return [nearest - 1, nearest, nearest + 1]


AMAXES = np.array(
    [0, 1, 2, 0x7FFFFF, 0x800000, *neighbours(2.0**-120), *neighbours(3.3e-4), *neighbours(1.0),
     *[x for floor in FLOORS for x in neighbours(floor)], 0x7F7FFFFF, INF, INF + 1, NAN],
    np.uint32,
)  # fmt: skip
PREVIOUS = np.full_like(AMAXES, bits(0.3))


def wanted(rule: Scaling) -> np.ndarray:
    """The scales of AMAXES as the documentation of each field says."""
    amax = AMAXES.view(np.float32).astype(np.float64)
    seen = np.where(amax < rule.amax_floor, rule.amax_floor, amax)
    after = rule.margin_after_division
    scale = (LARGEST * (1 if after else 2.0**-rule.margin) / seen).astype(np.float32)
    scale *= np.float32(2.0**-rule.margin) if after else np.float32(1)
    if rule.overflow == "largest":
        scale = np.where(np.isinf(scale), np.finfo(np.float32).max, scale)
    pattern = np.where(np.isnan(scale), 0x7FFFFFFF, scale.view(np.uint32))
    if rule.power_of_two:
        pattern &= 0xFF800000
    if rule.unusable == "formula":
        return pattern
    unusable = ~np.isfinite(amax) | ((amax == 0) & (rule.amax_floor == 0))
    return np.where(unusable, bits(1.0) if rule.unusable == "one" else PREVIOUS, pattern)


RULES = [
    Scaling("delayed", overflow=overflow, unusable=unusable, amax_floor=floor)
    for overflow, unusable, floor in itertools.product(
        ("largest", "infinity"), ("one", "previous", "formula"), (0.0, *FLOORS)
    )
] + [
    Scaling("delayed", margin=margin, margin_after_division=after, power_of_two=truncated)
    for margin, after, truncated in itertools.product((0, 3, 100), (False, True), (False, True))
]


def test_scales_are_what_the_fields_say():
    with jax.disable_jit(), np.errstate(all="ignore"):
        for rule in RULES:
            got = scale_bits(rule, E4M3, jnp.asarray(AMAXES), jnp.asarray(PREVIOUS))
            assert_bitwise_equal(np.asarray(got), wanted(rule).astype(np.uint32), err_msg=str(rule))


@pytest.mark.parametrize("kind", ["ignored", "kept"])
def test_amax_of_special_values(kind):
    rule = Scaling(nan_amax=kind, amax_axes=("devices",))

    def amax(*patterns: int) -> int:
        """Over an axis of two devices, the second of which has a subnormal."""
        x = np.array([patterns, [1] * len(patterns)], np.uint32).view(np.float32)
        both = jax.vmap(lambda x: amax_bits(rule, x), axis_name="devices")(jnp.asarray(x))
        assert both[0] == both[1]
        return int(both[0])

    assert amax(0x80000003, 2) == 3
    assert amax(0, 0) == 1
    assert amax(INF, 2) == INF
    assert amax(NAN, 2) == (2 if kind == "ignored" else NAN)
    alone = dataclasses.replace(rule, amax_axes=())
    assert int(amax_bits(alone, jnp.asarray([np.nan, 0], jnp.float32))) == (
        0 if kind == "ignored" else NAN
    )


def test_what_of_a_history_counts():
    for use, kind, history, want in (
        ("max", "ignored", (1, INF, 3), INF),
        ("max", "ignored", (1, NAN, 3), 3),
        ("max", "ignored", (NAN, NAN, 0), 0),
        ("max", "kept", (1, NAN, 3), NAN),
        ("most_recent", "ignored", (NAN, 2, 3), NAN),
    ):
        rule = Scaling("delayed", history_use=use, nan_amax=kind)
        assert int(history_amax(rule, jnp.asarray(history, jnp.uint32))) == want


def test_the_inverse_convention_rounds_to_the_dtype_it_divides_in():
    """float32 elements and a scale of bfloat16 weights: both are rounded first."""
    narrow, single = ml_dtypes.bfloat16, np.float32
    x = np.linspace(-3, 3, 301, dtype=single)
    quantization = Quantization("e4m3", Scaling("delayed", history_length=2, convention="inverse"))
    state = ScaleState(jnp.float32(0.0123), jnp.zeros(2, jnp.float32))
    codes = cast(quantization, jnp.asarray(x), state, np.dtype(narrow)).codes
    inverse = single(1) / (single(1) / single(0.0123))
    factor = single(1) / inverse.astype(narrow).astype(single)
    scaled = (x.astype(narrow).astype(single) * factor).astype(narrow)
    assert np.any(scaled != (x * factor).astype(narrow))
    assert_bitwise_equal(codes, np.clip(scaled.astype(single), -448, 448).astype(E4M3.dtype))


def test_defaults_and_limits():
    assert Scaling() == Scaling(
        "current", 1024, "max", "after_step", False, "ignored", "one", 0.0, "largest", False, 0,
        False, "scale", (),
    )  # fmt: skip
    for fields in (
        {"history_length": 1}, {"history_length": 1 << 20}, {"margin": 0}, {"margin": 100},
        {"amax_floor": 0}, {"amax_floor": 1e300}, {"amax_axes": ("x", "y")},
        {"timing": "delayed", "unusable": "previous"}, {"timing": "delayed"},
    ):  # fmt: skip
        assert dataclasses.asdict(Scaling(**fields)).items() >= fields.items()
    for fields in (
        {"history_length": 0}, {"history_length": (1 << 20) + 1}, {"margin": -1}, {"margin": 101},
        {"amax_floor": -0.5}, {"amax_floor": math.inf}, {"amax_floor": math.nan},
        {"unusable": "previous"},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"^Scaling: .*Ways? out"):
            Scaling(**fields)
    for fields in (
        {"amax_axes": ["x"]}, {"amax_axes": ("x", 1)}, {"amax_floor": "1"}, {"amax_floor": True},
        {"history_length": 2.0}, {"margin_after_division": 0},
    ):  # fmt: skip
        with pytest.raises(TypeError, match=f"^Scaling: {next(iter(fields))} must be "):
            Scaling(**fields)
