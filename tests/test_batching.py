"""vmap: every batch element is the GEMM it would be alone (R25)."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gemms import finite_codes, gemm, ordinary_scales

from mmaemu_jax.formats import E4M3, E5M2
from mmaemu_jax.testing import assert_bitwise_equal

M, N, K, BATCH = 5, 17, 40, 3
NAMES = ("a", "b", "scale_a", "scale_b", "scale_result", "c")
SHAPES = {"a": (M, K), "b": (N, K), "c": (M, N)}
SUBSETS = [s for n in range(1, 7) for s in itertools.combinations(NAMES, n)]


def operand(name: str, batch: tuple[int, ...] = ()) -> np.ndarray:
    """Random values of one operand with leading dimensions ``batch``."""
    seed = NAMES.index(name) + 10 * len(batch)
    shape = (*batch, *SHAPES.get(name, ()))
    if name in "ab":
        return finite_codes(seed, shape, E4M3 if name == "a" else E5M2)
    return ordinary_scales(seed, shape)


call = partial(gemm, out_dtype=E4M3.dtype)


def one_by_one(function, operands: list[np.ndarray], axes: list[int | None]) -> np.ndarray:
    """What vmap means: a loop."""
    taken = [
        operands if axis is None else np.moveaxis(operands, axis, 0)
        for operands, axis in zip(operands, axes, strict=True)
    ]
    return np.stack(
        [
            function(*(x if axis is None else x[i] for x, axis in zip(taken, axes, strict=True)))
            for i in range(BATCH)
        ]
    )


@pytest.mark.parametrize("mapped", SUBSETS, ids="+".join)
def test_any_operands_mapped(mapped):
    operands = [operand(name, (BATCH,) if name in mapped else ()) for name in NAMES]
    axes = [0 if name in mapped else None for name in NAMES]
    desired = one_by_one(partial(call, backend="cpu:scalar"), operands, axes)
    assert_bitwise_equal(jax.jit(jax.vmap(call, in_axes=axes))(*operands), desired)


@pytest.mark.parametrize("b_layout", ["nk", "kn"])
@pytest.mark.parametrize("mapped", [("a",), ("b", "scale_a"), ("scale_result",), ("c",), NAMES])
def test_the_reference_batches_alike(mapped, b_layout):
    operands = [operand(name, (BATCH,) if name in mapped else ()) for name in NAMES]
    if b_layout == "kn":
        operands[1] = operands[1].swapaxes(-1, -2)
    axes = [0 if name in mapped else None for name in NAMES]
    kernel, reference = (
        jax.jit(jax.vmap(partial(call, backend=backend, b_layout=b_layout), in_axes=axes))(
            *operands
        )
        for backend in ("auto", "reference")
    )
    assert_bitwise_equal(reference, kernel)


@pytest.mark.parametrize(("rows", "moves"), [(1, False), (2, True)])
def test_ones_before_the_mapped_axis(rows, moves):
    """Only they let a mapped axis come first without moving anything."""
    a = np.moveaxis(operand("a", (BATCH,))[:, :rows], 0, 1)
    pair, axes = (a, operand("b")), (1, None)
    function = jax.vmap(gemm, in_axes=axes)
    assert ("transpose" in str(jax.make_jaxpr(function)(*pair))) == moves
    assert_bitwise_equal(function(*pair), one_by_one(gemm, list(pair), list(axes)))


@pytest.mark.parametrize("b_layout", ["nk", "kn"])
@pytest.mark.parametrize("axes", [(1, 2), (2, 1), (-1, None), (None, -1), (0, 2), (1, 0)])
def test_any_axis_mapped(axes, b_layout):
    b = operand("b", (BATCH,))
    pair = [operand("a", (BATCH,)), b if b_layout == "nk" else b.swapaxes(1, 2)]
    pair = [
        x[0] if axis is None else np.moveaxis(x, 0, axis)
        for x, axis in zip(pair, axes, strict=True)
    ]
    function = partial(gemm, b_layout=b_layout)
    assert_bitwise_equal(
        jax.vmap(function, in_axes=axes)(*pair), one_by_one(function, pair, list(axes))
    )


@pytest.mark.parametrize("out_axis", [1, 2, -1])
def test_out_axes(out_axis):
    a, b = operand("a", (BATCH,)), operand("b")
    y = jax.vmap(gemm, in_axes=(0, None), out_axes=out_axis)(a, b)
    assert_bitwise_equal(np.moveaxis(y, out_axis, 0), np.stack([gemm(x, b) for x in a]))


# Which of the two levels maps a, b, scale_a, scale_b.
LEVELS = [
    ((1, 1, 0, 0), (1, 1, 0, 0)),
    ((1, 0, 0, 0), (0, 1, 0, 0)),
    ((0, 1, 1, 0), (1, 0, 0, 1)),
    ((0, 0, 1, 0), (0, 0, 0, 1)),
    ((1, 1, 1, 1), (1, 0, 1, 0)),
]


@pytest.mark.parametrize(("outer", "inner"), LEVELS)
def test_nested(outer, inner):
    sizes = (2, BATCH)
    operands = [
        operand(name, tuple(size for size, level in zip(sizes, levels, strict=True) if level))
        for name, levels in zip(NAMES, zip(outer, inner, strict=True), strict=False)
    ]
    outer_axes, inner_axes = ([0 if is_mapped else None for is_mapped in x] for x in (outer, inner))
    y = jax.jit(jax.vmap(jax.vmap(gemm, in_axes=inner_axes), in_axes=outer_axes))(*operands)
    assert y.shape == (*sizes, M, N)
    for i, j in itertools.product(*map(range, sizes)):
        own = [
            x[tuple(index for index, level in ((i, out), (j, into)) if level)]
            for x, out, into in zip(operands, outer, inner, strict=True)
        ]
        assert_bitwise_equal(y[i, j], gemm(*own))


def test_three_levels_and_one_shared_weight():
    a, b = operand("a", (2, 2, BATCH)), operand("b")
    function = gemm
    for _ in range(3):
        function = jax.vmap(function, in_axes=(0, None))
    desired = np.stack([gemm(x, b) for x in a.reshape(-1, M, K)])
    assert_bitwise_equal(function(a, b), desired.reshape(2, 2, BATCH, M, N))


def test_leading_dimensions_without_vmap():
    """Operands of the primitive itself may hold 1 where others hold the batch."""
    a, b = operand("a", (2, 1)), operand("b", (1, BATCH))
    scale_a, scale_b = operand("scale_a", (1, BATCH)), operand("scale_b", (1, 1))
    y = gemm(a, b, scale_a, scale_b)
    for i, j in np.ndindex(2, BATCH):
        assert_bitwise_equal(y[i, j], gemm(a[i, 0], b[0, j], scale_a[0, j], scale_b[0, 0]))


def test_with_other_transformations():
    a, b = operand("a", (BATCH,)), operand("b")
    desired = jnp.stack([gemm(x, b) for x in a])
    for wrap in (jax.checkpoint, jax.jit):
        assert_bitwise_equal(jax.vmap(wrap(gemm), in_axes=(0, None))(a, b), desired)

    def scanned(x):
        return jax.lax.scan(lambda c, _: (c, gemm(x, b)), None, length=2)[1][-1]

    assert_bitwise_equal(jax.vmap(scanned)(a), desired)
    chosen = jax.vmap(lambda x, p: jax.lax.cond(p, gemm, lambda x, b: -gemm(x, b), x, b))
    assert_bitwise_equal(chosen(a, np.ones(BATCH, bool)), desired)
