"""Meshes of explicit axes: the result's type is sharded as jnp.dot's would be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gemms import finite_codes, gemm, ordinary_scales
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import mmaemu_jax as mj
from mmaemu_jax.testing import assert_bitwise_equal

M, N, K, BATCH = 16, 32, 64, 4
A, B = finite_codes(1, (BATCH, M, K)), finite_codes(2, (BATCH, N, K))
C = ordinary_scales(3, (BATCH, M, N))


@pytest.fixture(scope="module")
def mesh():
    return jax.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)


@pytest.fixture(autouse=True)
def in_force(mesh):
    with jax.set_mesh(mesh):
        yield


def put(mesh, x, *spec):
    return jax.device_put(x, NamedSharding(mesh, P(*spec)))


def check(function, operands, out: P):
    """The type while tracing, the shape evaluated, the result itself, and its bits."""
    types = []

    def traced(*operands):
        y = function(*operands)
        types.append(jax.typeof(y))
        return y

    y = jax.jit(traced)(*operands)
    assert types[0].sharding.spec == out
    assert jax.eval_shape(function, *operands).sharding.spec == out
    assert y.sharding.spec == out
    assert_bitwise_equal(y, jax.jit(function)(*map(np.asarray, operands)))


def dot_spec(a, b) -> P:
    """How JAX types the product of the same operands."""
    wide = [jax.ShapeDtypeStruct(x.shape, np.float32, sharding=x.sharding) for x in (a, b)]
    return jax.eval_shape(lambda a, b: jnp.dot(a, b.T), *wide).sharding.spec


@pytest.mark.parametrize(
    ("of_a", "of_b"),
    [
        (("x",), ("y",)),
        (("y",), ()),
        ((), (("x", "y"),)),
        (("y", "x"), ()),  # K of one operand is gathered
        (("x",), (None, "y")),
    ],
    ids=str,
)
def test_as_jnp_dot(mesh, of_a, of_b):
    operands = put(mesh, A[0], *of_a), put(mesh, B[0], *of_b)
    spec = dot_spec(*operands)
    check(gemm, operands, spec)
    check(lambda a, b: gemm(a, b.T, b_layout="kn"), operands, spec)


def test_eagerly(mesh):
    y = gemm(put(mesh, A[0], "x"), put(mesh, B[0], "y"))
    assert y.sharding.spec == P("x", "y")
    assert_bitwise_equal(y, gemm(A[0], B[0]))


@pytest.mark.parametrize(
    ("in_axes", "of_a", "of_b", "out"),
    [
        ((0, 0), ("x", "y"), ("x",), P("x", "y", None)),
        ((0, None), ("x",), ("y",), P("x", None, "y")),
        ((1, None), (None, "x"), ("y",), P("x", None, "y")),
        ((None, 0), ("x",), ("y",), P("y", "x", None)),
    ],
)
def test_vmap(mesh, in_axes, of_a, of_b, out):
    operands = [x[0] if axis is None else x for x, axis in zip((A, B), in_axes, strict=True)]
    if in_axes[0] == 1:
        operands[0] = operands[0].swapaxes(0, 1)
    placed = [put(mesh, x, *s) for x, s in zip(operands, (of_a, of_b), strict=True)]
    check(jax.vmap(gemm, in_axes=in_axes), placed, out)


def test_every_operand_has_a_say(mesh):
    scale = ordinary_scales(4, (BATCH,))
    operands = [put(mesh, A), put(mesh, B), put(mesh, scale, "x"), put(mesh, scale)]
    operands += [put(mesh, C, None, None, "y")]
    check(lambda a, b, s, t, c: gemm(a, b, s, t, None, c), operands, P("x", None, "y"))


def test_scan(mesh):
    def layers(x, weights):
        return jax.lax.scan(lambda c, w: (c, gemm(x, w)), 0, weights)[1]

    check(layers, (put(mesh, A[0], "x"), put(mesh, B, None, "y")), P(None, "x", "y"))


def test_public_functions(mesh):
    def linear(x, w, scale):
        return mj.scaled_mm(x, w.T, scale, 1.0, out_dtype=jnp.bfloat16, splitk=1)

    operands = [put(mesh, A[0], "x"), put(mesh, B[0], "y"), put(mesh, np.full((1, 1), 2, "f4"))]
    check(linear, operands, P("x", "y"))
    check(mj.dot, (put(mesh, A, "x", "y"), put(mesh, A, "x", "y")), P("x", "y"))
    check(lambda x: mj.quantize(x, "e4m3", 2.0), [put(mesh, C, "x")], P("x", None, None))


@pytest.mark.parametrize(
    ("of_a", "of_b", "text"),
    [
        ((None, "x"), (None, "x"), r"K is sharded on both .*'x' and 'x'"),
        (("x", "y"), (None, "y"), "K is sharded on both"),
        (("x",), ("x",), "m and n are both sharded over 'x'"),
    ],
)
def test_where_jax_raises_so_do_we(mesh, of_a, of_b, text):
    operands = put(mesh, A[0], *of_a), put(mesh, B[0], *of_b)
    with pytest.raises(
        TypeError, match=rf"^mmaemu_scaled_mm: .*{text}.* Ways out: .*reshard.*auto_axes"
    ):
        jax.jit(gemm)(*operands)
    with pytest.raises(Exception, match="sharded"):
        dot_spec(*operands)


def test_operands_that_disagree(mesh):
    operands = [put(mesh, A[0], "x"), put(mesh, B[0]), put(mesh, C[0], "y")]
    with pytest.raises(TypeError, match="shard m over 'x' and 'y'"):
        jax.jit(lambda a, b, c: gemm(a, b, None, None, None, c))(*operands)


def test_the_ways_out_of_a_sharded_k(mesh):
    a, b = put(mesh, A[0], None, "x"), put(mesh, B[0], "y", "x")
    check(lambda a, b: gemm(jax.sharding.reshard(a, P(None, None)), b), (a, b), P(None, "y"))
    gathered = jax.sharding.auto_axes(gemm, out_sharding=P("x", "y"))
    y = jax.jit(gathered)(a, b)
    assert y.sharding.spec == P("x", "y")
    assert_bitwise_equal(y, jax.jit(gemm)(A[0], B[0]))
