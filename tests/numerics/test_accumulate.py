"""Chains, chunks, splits and their combination (R9 to R13, R15), batches and tiles."""

import jax
import numpy as np
import pytest
from reference_calls import ONE, bits, codes, oracle_bits, reference_bits, stacked

from mmaemu_jax.accumulate import (
    CONTIGUOUS_128,
    INTERLEAVED_64,
    ONE_CHAIN,
    AccumulationPlan,
    SplitK,
    make_plan,
)
from mmaemu_jax.formats import E4M3, E5M2
from mmaemu_jax.instruction import ADA, B200_MMA_SYNC, HOPPER, InstructionModel
from mmaemu_jax.reference import _tiles, gemm
from mmaemu_jax.testing.cases import families

SLOW = AccumulationPlan(chunk_k=128)


def split_plan(splits, scheme, fast):
    rule = CONTIGUOUS_128 if scheme == "contiguous" else INTERLEAVED_64
    return make_plan(fast, SplitK(splits, scheme), rule, 128)


#: S and whether fast, by scheme; K = 450 leaves contiguous splits empty at S = 3 and from 5 on.
SPLITS = [
    *(("pairwise", splits, splits % 2 == 0) for splits in range(2, 8)),
    *(("serial", splits, splits % 2 == 1) for splits in (2, 3, 5, 6)),
    *(
        ("contiguous", splits, fast)
        for splits, fast in ((2, True), (3, False), (4, True), (7, False))
    ),
]


@pytest.mark.parametrize(("scheme", "splits", "fast"), SPLITS)
def test_splits_with_a_ragged_last_tile(scheme, splits, fast):
    model = HOPPER.model if scheme == "contiguous" else ADA.model
    plan = split_plan(splits, scheme, fast)
    a, b = stacked(("growing", "cancelling_halves", "randn"), E4M3, E5M2, 1, 2, 450)
    arguments = (a, b, E4M3, E5M2)
    got = reference_bits(*arguments, model=model, plan=plan)
    np.testing.assert_array_equal(got, oracle_bits(*arguments, model=model, plan=plan))


@pytest.mark.parametrize(
    ("model", "plan"),
    [
        (HOPPER.model, SLOW),
        (InstructionModel(5, 3, 7, -20, False), AccumulationPlan(chunk_k=32)),
        (InstructionModel(24, 9, 13, -132, True), AccumulationPlan(128, 3, 64, True)),
    ],
)
def test_a_block_that_does_not_divide_the_chunk_is_padded_per_chain(model, plan):
    a, b = stacked(("growing", "cancelling_halves", "dominant_exponent"), E5M2, E4M3, 1, 2, 300)
    arguments = (a, b, E5M2, E4M3)
    got = reference_bits(*arguments, model=model, plan=plan)
    np.testing.assert_array_equal(got, oracle_bits(*arguments, model=model, plan=plan))


def at(positions):
    """Operands of K = 512 with a[p] b[p] = value at the given positions, zero elsewhere."""
    a, b = np.zeros((1, 512)), np.zeros((1, 512))
    for position, value in positions.items():
        b[0, position] = min(abs(value), 2.0**12)
        a[0, position] = value / b[0, position]
    return codes(E5M2, a), codes(E5M2, b)


BIG = 2.0**24  # absorbs 1 in float32, by a tie

SERIAL_2, SERIAL_3 = split_plan(2, "serial", True), split_plan(3, "serial", True)
SERIAL_2_SLOW = split_plan(2, "serial", False)
PAIRWISE_3, PAIRWISE_4 = split_plan(3, "pairwise", True), split_plan(4, "pairwise", True)
CONTIGUOUS_2 = split_plan(2, "contiguous", True)
CONTIGUOUS_2_SLOW = split_plan(2, "contiguous", False)

#: name: (positions of products, plan, expected).
FACTS = {
    "one chain loses what is below its grid": ({0: 2.0**14, 128: 1}, ONE_CHAIN, 2.0**14),
    "a chunk starts from zero": ({0: 2.0**14, 128: 1}, SLOW, 2.0**14 + 1),
    "no chunk starts earlier": ({0: 2.0**14, 127: 1}, SLOW, 2.0**14),
    "chunks are added in order": ({0: BIG, 128: 1, 256: -BIG}, SLOW, 0.0),
    "chunks are added to nearest": ({0: BIG, 128: 1, 129: 2}, SLOW, BIG + 4),
    "a tile is 64 wide": ({0: 2.0**14, 64: 1}, SERIAL_2, 2.0**14 + 1),
    "a split takes every S-th tile": ({0: 2.0**14, 128: 1}, SERIAL_2, 2.0**14),
    "a slow split restarts after two own tiles": ({0: 2.0**14, 256: 1}, SERIAL_2_SLOW, 2.0**14 + 1),
    "and not after one": ({0: 2.0**14, 128: 1}, SERIAL_2_SLOW, 2.0**14),
    "serial is (p0 + p1) + p2": ({0: BIG, 64: 1, 128: -BIG}, SERIAL_3, 0.0),
    "pairwise, S = 3, is (p2 + p0) + p1": ({0: BIG, 64: 1, 128: -BIG}, PAIRWISE_3, 1.0),
    "pairwise, S = 4, is (p3 + (p0 + p2)) + p1": (
        {0: BIG, 64: 1, 128: -BIG, 192: 1}, PAIRWISE_4, 2.0,
    ),
    "contiguous: a split owns neighbours": ({0: 2.0**14, 128: 1}, CONTIGUOUS_2, 2.0**14),
    "contiguous: half of the tiles each": ({0: 2.0**14, 256: 1}, CONTIGUOUS_2, 2.0**14 + 1),
    "contiguous: to the last tile": ({0: 2.0**14, 511: 1}, CONTIGUOUS_2, 2.0**14 + 1),
    "contiguous, slow: each tile is a chain": (
        {0: 2.0**14, 128: 1}, CONTIGUOUS_2_SLOW, 2.0**14 + 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("fact", FACTS)
def test_fact(fact):
    positions, plan, expected = FACTS[fact]
    a, b = at(positions)
    assert oracle_bits(a, b, E5M2, E5M2, model=ADA.model, plan=plan).item() == bits(expected)
    assert reference_bits(a, b, E5M2, E5M2, model=ADA.model, plan=plan).item() == bits(expected)


@pytest.mark.parametrize(("interleaved", "last"), [(True, 192), (False, 320)])
def test_a_split_ends_with_its_last_tile(interleaved, last):
    """With frac below frac_out, a block of zeros more would truncate 2.5 to 2."""
    plan = AccumulationPlan(0, 3, 64, interleaved)
    model = InstructionModel(2, 1, 23, -132, late_c=False)
    a, b = np.zeros((2, 1, 320))
    a[0, last - 2 : last], b[0, last - 2 : last] = (1.5, 1), 1
    arguments = (codes(E5M2, a), codes(E5M2, b), E5M2, E5M2)
    assert oracle_bits(*arguments, model=model, plan=plan).item() == bits(2.5)
    assert reference_bits(*arguments, model=model, plan=plan).item() == bits(2.5)


def test_a_ragged_tail_equals_zero_padding():
    a, b = stacked(families(), E4M3, E4M3, 2, 3, 130)
    padded = [np.pad(x, ((0, 0), (0, 0), (0, 14)), constant_values=0x80) for x in (a, b)]
    np.testing.assert_array_equal(
        reference_bits(a, b, E4M3, E4M3, model=ADA.model),
        reference_bits(*padded, E4M3, E4M3, model=ADA.model),
    )


@pytest.mark.parametrize("plan", [ONE_CHAIN, SLOW, split_plan(3, "pairwise", False)])
def test_no_k_is_plus_zero_without_an_epilogue(plan):
    a, b = np.zeros((2, 0), np.uint8), np.zeros((3, 0), np.uint8)
    nan = 0x7FC00000
    got = reference_bits(a, b, E4M3, E4M3, nan, nan, model=ADA.model, plan=plan)
    np.testing.assert_array_equal(got, np.zeros((2, 3), np.uint32))
    batch = reference_bits(a[None], b[None], E4M3, E4M3, nan, nan, model=ADA.model, plan=plan)
    np.testing.assert_array_equal(batch, [got])


@pytest.mark.parametrize("model", [ADA.model, B200_MMA_SYNC.model])
def test_no_k_leaves_the_accumulator_to_the_epilogue(model):
    a, b = np.zeros((1, 0), np.uint8), np.zeros((4, 0), np.uint8)
    c = np.array([[0x00000001, 0x80000000, 0xFFC00001, 0xC0400000]], np.uint32)
    got = reference_bits(a, b, E4M3, E4M3, c=c, model=model)
    np.testing.assert_array_equal(got, [[0x00000001, 0, 0x7FFFFFFF, 0xC0400000]])


def test_an_accumulator_needs_one_chain():
    a = np.zeros((1, 16), np.uint8)
    c = np.zeros((1, 1), np.uint32)
    with pytest.raises(ValueError, match="ONE_CHAIN"):
        reference_bits(a, a, E4M3, E4M3, c=c, model=ADA.model, plan=SLOW)


@pytest.mark.parametrize("shape", [(0, 2, 3), (2, 0, 3), (2, 3, 0)])
def test_empty_results(shape):
    batch, m, n = shape
    a, b = np.zeros((batch, m, 16), np.uint8), np.zeros((batch, n, 16), np.uint8)
    assert reference_bits(a, b, E4M3, E4M3, model=ADA.model).shape == shape


def test_operands_without_their_formats_are_refused():
    x = jax.numpy.zeros((1, 16), np.float32)
    with pytest.raises(TypeError, match="a must be E4M3 or E5M2, got float32"):
        gemm(x, x, x[0, 0], x[0, 0], model=ADA.model, plan=ONE_CHAIN, out_dtype=np.float32)


def test_batch_dimensions_broadcast_without_changing_bits():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 0x7C, (2, 1, 3, 40), dtype=np.uint8)
    b = rng.integers(0, 0x7C, (1, 4, 5, 40), dtype=np.uint8)
    scale_a = np.array([[ONE], [0x3DCCCCCD]], np.uint32)
    scale_b = np.array([[ONE, 0xBF800000, 0x3FD9999A, 0x00000001]], np.uint32)
    settings = {"model": ADA.model, "plan": SLOW, "out_dtype": np.dtype(np.float16)}
    got = reference_bits(a, b, E4M3, E5M2, scale_a, scale_b, **settings)
    assert got.shape == (2, 4, 3, 5)
    for i in range(2):
        for j in range(4):
            alone = reference_bits(
                a[i, 0], b[0, j], E4M3, E5M2, scale_a[i, 0], scale_b[0, j], **settings
            )
            np.testing.assert_array_equal(got[i, j], alone)


@pytest.mark.parametrize(
    ("shape", "k", "tile"),
    [
        ((1, 1, 9999), 16, (1, 1, 512)),
        ((1, 16, 9999), 16, (1, 16, 256)),
        ((1, 17, 9999), 16, (1, 17, 240)),
        ((2, 4096, 4096), 0, (1, 64, 64)),
        ((3, 4, 4), 16, (3, 4, 4)),
        ((3, 64, 64), 16, (1, 64, 64)),
        ((999, 4, 4), 16, (256, 4, 4)),
        ((999, 3, 4), 1 << 20, (4, 3, 4)),  # codes of 2^24 bytes
        ((999, 4, 3), 1 << 20, (4, 4, 3)),
        ((2, 40, 50), 1 << 20, (1, 16, 16)),
        ((7, 3, 2), 1 << 25, (1, 1, 1)),
    ],
)
def test_tiles_are_bounded(shape, k, tile):
    found = _tiles._tile_shape(shape, k)
    assert found == tile
    assert all(type(size) is int for size in found)


@pytest.mark.parametrize(("batch", "m", "n"), [(7, 3, 4), (2, 9, 70)])
def test_tiles_do_not_show(monkeypatch, batch, m, n):
    a, b = stacked(families()[:batch], E5M2, E4M3, m, n, 33)
    c = np.resize(np.float32([0, 1.5, -(2.0**20)]).view(np.uint32), (batch, m, n))
    whole = reference_bits(a, b, E5M2, E4M3, c=c, model=ADA.model)
    monkeypatch.setattr(_tiles, "_TILE_OUTPUTS", 40)
    tiled = reference_bits(a, b, E5M2, E4M3, c=c, model=ADA.model, run=unjitted)
    np.testing.assert_array_equal(whole, tiled)


def unjitted(*operands, **settings):
    """A run that no earlier trace of the same shapes can serve."""
    return jax.jit(lambda *x: gemm(*x, **settings))(*operands)


def test_compiled_and_interpreted_bits_are_the_same():
    a, b = stacked(("growing", "special_values"), E4M3, E5M2, 1, 2, 11, finite=False)
    arguments = (a, b, E4M3, E5M2, 0x3DCCCCCD, 0x00400000)
    settings = {"model": InstructionModel(3, 13, 13, -132, late_c=True)}
    compiled = reference_bits(*arguments, **settings)
    with jax.disable_jit():
        interpreted = reference_bits(*arguments, **settings, run=gemm)
    np.testing.assert_array_equal(compiled, interpreted)
    np.testing.assert_array_equal(compiled, oracle_bits(*arguments, **settings))
    assert not jax.config.jax_enable_x64
