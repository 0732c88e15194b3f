"""Presets, split rules and plans as data: their bounds, their defaults, what they refuse."""

import dataclasses

import pytest

import mmaemu_jax as mj
from mmaemu_jax.accumulate import (
    CONTIGUOUS_128,
    INTERLEAVED_64,
    MAX_CHUNK_K,
    MAX_SPLITS,
    MAX_TILE_K,
    ONE_CHAIN,
    AccumulationPlan,
    SplitK,
    SplitRule,
    make_plan,
)
from mmaemu_jax.epilogue import CANONICAL_NAN
from mmaemu_jax.formats import E4M3, E5M2, FORMATS, format_named, format_of
from mmaemu_jax.instruction import InstructionModel

#: (field, smallest, largest) of what a preset may hold.
BOUNDS = [
    ("nfma", 1, 1024),
    ("frac", 1, 40),
    ("frac_out", 1, 23),
    ("min_exp", -1000, 127),
    ("slow_chunk", 1, 1 << 40),
]
HOPPER = mj.get_preset("hopper")


@pytest.mark.parametrize(("field", "low", "high"), BOUNDS)
def test_numbers_of_a_preset_have_bounds(field, low, high):
    for value in (low, high):
        assert getattr(dataclasses.replace(HOPPER, **{field: value}), field) == value
    for value in (low - 1, high + 1):
        with pytest.raises(ValueError, match=f"^Preset: {field} must be in .*, got {value}"):
            dataclasses.replace(HOPPER, **{field: value})
    for value in (True, 2.0, "2"):
        with pytest.raises(TypeError, match=f"^Preset: {field} must be an int.*, got {value!r}"):
            dataclasses.replace(HOPPER, **{field: value})


def test_other_fields_of_a_preset():
    with pytest.raises(TypeError, match="late_c must be a bool, got 1"):
        dataclasses.replace(HOPPER, late_c=1)
    with pytest.raises(ValueError, match=r"evidence must be one of \('replayed', .* got 'none'"):
        dataclasses.replace(HOPPER, evidence="none")
    with pytest.raises(TypeError, match="frac must be an int"):
        InstructionModel(32, None, 13, -132, False)


def test_a_users_preset():
    mine = mj.Preset("mine", 4, 20, 19, -126)
    assert mine.model == InstructionModel(4, 20, 19, -126, False)
    assert (mine.slow_chunk, mine.maturity, mine.provenance) == (
        None,
        "experimental",
        "user-defined",
    )
    assert mj.get_preset(mine) is mine
    assert mj.get_preset("blackwell") is mj.get_preset("b200_mma_sync")
    assert mj.list_presets() == ("ada", "hopper", "b200_mma_sync")


def test_unknown_presets():
    with pytest.raises(ValueError, match=r"^get_preset: Unknown preset 'h100'; known: ada, .*Ways"):
        mj.get_preset("h100")
    with pytest.raises(TypeError, match=r"^get_preset: preset must be a name or a Preset, got int"):
        mj.get_preset(3)


def test_bounds_of_plans():
    """As csrc/numerics/accumulate.h has them."""
    assert (MAX_SPLITS, MAX_TILE_K, MAX_CHUNK_K) == (4096, 1 << 30, 1 << 40)
    for tile_k in (1, 1 << 30):
        assert SplitRule(tile_k, True, ("serial",), True).tile_k == tile_k


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"tile_k": 0}, ValueError, "tile_k must be in 1..1073741824, got 0"),
        ({"tile_k": (1 << 30) + 1}, ValueError, "tile_k must be in"),
        ({"tile_k": True}, TypeError, "tile_k must be an int, got True"),
        ({"tile_k": 64.0}, TypeError, "tile_k must be an int, got 64.0"),
        ({"schemes": ()}, TypeError, "schemes must be a non-empty tuple"),
        ({"schemes": ["serial"]}, TypeError, "schemes must be a non-empty tuple"),
        ({"schemes": ("serial", "tree", "ring")}, ValueError, "unknown scheme 'tree'; known: ser"),
        ({"interleaved": 1}, TypeError, "interleaved must be a bool"),
        ({"empty_split_recorded": None}, TypeError, "empty_split_recorded must be a bool"),
    ],
)
def test_fields_of_a_split_rule_are_checked(changes, error, text):
    with pytest.raises(error, match=f"^SplitRule: {text}"):
        dataclasses.replace(INTERLEAVED_64, **changes)


@pytest.mark.parametrize(
    "rule", [INTERLEAVED_64, CONTIGUOUS_128, SplitRule(3, False, ("serial",), True)]
)
def test_which_splits_own_a_tile(rule):
    """Against the tiles of R12 and R13, dealt out one by one."""
    for k in range(1, 10 * rule.tile_k, max(1, rule.tile_k // 3)):
        tiles = len(range(0, k, rule.tile_k))
        for splits in range(1, 13):
            each = len(range(0, tiles, splits))  # ceil(tiles / splits)
            owners = {t % splits if rule.interleaved else t // each for t in range(tiles)}
            assert rule.leaves_split_empty(splits, k) == (len(owners) < splits)


def test_plans():
    assert (
        make_plan(True, SplitK(1), None, None)
        == ONE_CHAIN
        == AccumulationPlan(0, 1, 0, False, False)
    )
    assert make_plan(False, SplitK(1), None, 128) == AccumulationPlan(128, 1, 0, False, False)
    plans = {
        (True, SplitK(3, "serial"), INTERLEAVED_64): AccumulationPlan(0, 3, 64, True, False),
        (False, SplitK(4, "pairwise"), INTERLEAVED_64): AccumulationPlan(128, 4, 64, True, True),
        (False, SplitK(2, "contiguous"), CONTIGUOUS_128): AccumulationPlan(
            128, 2, 128, False, False
        ),
    }
    for arguments, plan in plans.items():
        assert make_plan(*arguments, 128) == plan


def test_plans_that_cannot_be():
    with pytest.raises(ValueError, match="slow accumulation needs a slow_chunk"):
        make_plan(False, SplitK(1), None, None)
    with pytest.raises(ValueError, match="a split needs a split rule"):
        make_plan(True, SplitK(2, "serial"), None, 128)
    with pytest.raises(ValueError, match="tile_k 64 must divide slow_chunk 96"):
        make_plan(False, SplitK(2, "serial"), INTERLEAVED_64, 96)


def test_formats_and_their_names():
    assert (E4M3.emin, E4M3.emax, E4M3.largest_code, E4M3.has_infinity) == (-6, 8, 0x7E, False)
    assert (E5M2.emin, E5M2.emax, E5M2.largest_code, E5M2.has_infinity) == (-14, 15, 0x7B, True)
    for fmt in FORMATS:
        assert fmt.values.shape == (256,)
        for name in (fmt, fmt.name, fmt.dtype, fmt.dtype.name, fmt.dtype.type):
            assert format_named(name) is fmt
        assert format_of(fmt.dtype.name) is fmt
    assert format_named("e4m3fn") is E4M3
    assert [format_named(name) for name in ("e3m4", "float32", float, 3)] == [None] * 4
    assert format_of("float32") is None


def test_canonical_nan_of_every_output():
    """The bits of R19."""
    assert {dtype.name: bits for dtype, bits in CANONICAL_NAN.items()} == {
        "float32": 0x7FFFFFFF,
        "bfloat16": 0x7FFF,
        "float16": 0x7FFF,
        "float8_e4m3fn": 0x7F,
        "float8_e5m2": 0x7F,
    }
