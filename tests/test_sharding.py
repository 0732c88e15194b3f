"""The primitive in programs that JAX partitions over devices: no copies, no collectives, same bits.

On the four CPU devices of conftest.py; other meshes are in test_meshes.py.
"""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gemms import finite_codes, gemm, ordinary_scales
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import mmaemu_jax as mj
from mmaemu_jax import partition, primitive
from mmaemu_jax.accumulate import AccumulationPlan
from mmaemu_jax.errors import UnsupportedFeatureError
from mmaemu_jax.formats import E4M3
from mmaemu_jax.testing import assert_bitwise_equal

M, N, K, BATCH = 16, 24, 96, 4
A, B = finite_codes(1, (BATCH, M, K)), finite_codes(2, (BATCH, N, K))
C = ordinary_scales(5, (BATCH, M, N))
SCALE_A, SCALE_B, SCALE_RESULT = (ordinary_scales(i, (BATCH,)) for i in (3, 4, 6))
OPERANDS = (A, B, SCALE_A, SCALE_B)
ONE_GEMM = tuple(x[0] for x in OPERANDS)
REPLICATED = (P(), P())
SLOW_SPLIT = AccumulationPlan(32, 2, 32)

matmul = partial(gemm, b_layout="kn")  # b is [K, N]


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    assert jax.device_count() == 4
    return Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))


def place(mesh: Mesh, operands, specs):
    return [jax.device_put(x, NamedSharding(mesh, s)) for x, s in zip(operands, specs, strict=True)]


COLLECTIVE = r"all-gather|all-reduce|all-to-all|reduce-scatter|collective-\w+"


def collectives(hlo: str) -> list[str]:
    return re.findall(rf"(?:{COLLECTIVE})(?=[\w.-]*\()", hlo)


def moves(hlo: str) -> list[str]:
    """Instructions that transpose or copy a matrix."""
    return re.findall(r"= \w+\[\d+,[\d,]+\]\S* (?:transpose|copy)\(.*", hlo)


def run(function, operands, **options):
    """The result, and the compiled program, which calls the kernel."""
    compiled = jax.jit(function, **options).lower(*operands).compile()
    hlo = compiled.as_text()
    assert "mmaemu_scaled_mm" in hlo
    return compiled(*operands), hlo


def check(function, mesh, operands, specs, out: P, **options):
    """No collective and no moved matrix, an output sharded as ``out``, the bits of one device."""
    y, hlo = run(function, place(mesh, operands, specs), **options)
    assert collectives(hlo) == []
    assert moves(hlo) == []
    assert y.sharding.is_equivalent_to(NamedSharding(mesh, out), y.ndim)
    assert_bitwise_equal(y, jax.jit(function)(*operands))


# --------------------------------------------------------------------------------- M, N and batch

LAYOUTS = {
    "nk": (gemm, ONE_GEMM[1], P("y", None)),
    "kn": (matmul, np.ascontiguousarray(ONE_GEMM[1].T), P(None, "y")),
    "w.T": (lambda x, w, *scales: matmul(x, w.T, *scales), ONE_GEMM[1], P("y", None)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_m_and_n(mesh, layout):
    function, b, spec = LAYOUTS[layout]
    operands = (ONE_GEMM[0], b, *ONE_GEMM[2:])
    check(function, mesh, operands, (P("x"), spec, *REPLICATED), P("x", "y"))


def test_the_asked_output_reaches_the_operands(mesh):
    asked = {"out_shardings": NamedSharding(mesh, P("y", "x"))}
    check(gemm, mesh, ONE_GEMM, (P(),) * 4, P("y", "x"), **asked)


def test_one_dimension_over_both_axes(mesh):
    function = LAYOUTS["w.T"][0]
    specs = (P(("x", "y")), P(), *REPLICATED)
    check(function, mesh, ONE_GEMM, specs, P(("x", "y")))
    check(function, mesh, ONE_GEMM, (P(), P(("y", "x")), *REPLICATED), P(None, ("y", "x")))


@pytest.mark.parametrize("options", [{"plan": SLOW_SPLIT}, {"backend": "cpu:scalar"}], ids=str)
def test_options_reach_every_part(mesh, options):
    function = partial(gemm, **options)
    check(function, mesh, ONE_GEMM, (P("x"), P("y"), *REPLICATED), P("x", "y"))


def test_all_operands_under_vmap(mesh):
    operands = (*OPERANDS, SCALE_RESULT, C)
    batch, specs = P("x"), (P("x", "y"), P("x"), P("x"), P("x"), P("x"), P("x", "y"))
    function = jax.vmap(partial(gemm, out_dtype=E4M3.dtype))
    check(function, mesh, operands, specs, P("x", "y"))
    check(function, mesh, operands, (batch,) * 6, batch)


@pytest.mark.parametrize(
    ("in_axes", "specs", "out"),
    [
        ((0, None), (P("x"), P("y")), P("x", None, "y")),
        ((None, 0), (P("y"), P("x")), P("x", "y")),
        ((0, 0), (P(("x", "y")), P(("x", "y"))), P(("x", "y"))),
    ],
)
def test_vmap(mesh, in_axes, specs, out):
    """A weight that is not mapped is neither copied per element nor transposed."""
    operands = [x if axis == 0 else x[0] for x, axis in zip((A, B), in_axes, strict=True)]
    function = jax.vmap(lambda x, w: matmul(x, w.T), in_axes=in_axes)
    check(function, mesh, operands, specs, out)


def test_nested_vmap(mesh):
    function = jax.vmap(jax.vmap(lambda x, w: matmul(x, w.T), (0, None)), (0, None))
    x = A.reshape(2, 2, M, K)
    check(function, mesh, (x, B[0]), (P("y", "x"), P()), P("y", "x"))


def test_scan_over_layers(mesh):
    def function(x, weights):
        return jax.lax.scan(lambda x, w: (x, matmul(x, w.T)), x, weights)[1]

    y, hlo = run(function, place(mesh, (A[0], B), (P("x"), P(None, "y"))))
    assert collectives(hlo) == []
    assert_bitwise_equal(y, jnp.stack([gemm(A[0], w) for w in B]))


@pytest.mark.parametrize(
    "wrap",
    [
        jax.checkpoint,
        lambda f: lambda *x: jax.lax.cond(x[2][()] > -9, f, lambda *x: -f(*x), *x),
        lambda f: lambda *x: jax.lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, f(*x)),
                                                (0, jnp.zeros((M, N))))[1],
    ],
    ids=["checkpoint", "cond", "while"],
)  # fmt: skip
def test_inside_other_transformations(mesh, wrap):
    operands = place(mesh, ONE_GEMM, (P("x"), P("y"), *REPLICATED))
    y, hlo = run(wrap(gemm), operands)
    assert set(collectives(hlo)) <= {"all-reduce"}  # of the predicate
    assert_bitwise_equal(y, gemm(*ONE_GEMM))


def test_donation(mesh):
    a, b = finite_codes(9, (32, 32)), finite_codes(10, (32, 32))
    operands = place(mesh, (a, b), (P("x", "y"), P("y")))
    program = jax.jit(partial(gemm, out_dtype=E4M3.dtype), donate_argnums=0)
    assert_bitwise_equal(program(*operands), gemm(a, b, out_dtype=E4M3.dtype))
    assert operands[0].is_deleted()


def test_eagerly(mesh):
    y = gemm(*place(mesh, ONE_GEMM, (P("x"), P("y"), *REPLICATED)))
    assert y.sharding.is_equivalent_to(NamedSharding(mesh, P("x", "y")), 2)
    assert_bitwise_equal(y, gemm(*ONE_GEMM))


def test_the_reference_partitions_alike(mesh):
    operands = place(mesh, ONE_GEMM, (P("x"), P("y"), *REPLICATED))
    compiled = jax.jit(partial(gemm, backend="reference")).lower(*operands).compile()
    assert collectives(compiled.as_text()) == []
    assert_bitwise_equal(compiled(*operands), gemm(*ONE_GEMM))


def test_derivatives_are_still_refused(mesh):
    operands = place(mesh, ONE_GEMM, (P("x"), P("y"), *REPLICATED))
    with pytest.raises(UnsupportedFeatureError, match="scaled_mm"):
        jax.jit(jax.grad(lambda s: gemm(*operands[:2], s, operands[3]).sum()))(operands[2])


# ------------------------------------------------------------------------------------ K and others


@pytest.mark.parametrize(
    ("specs", "gathers"),
    [
        ((P("x", "y"), P(None, "y")), 2),
        ((P("x", "y"), P()), 1),
        ((P(), P("y", "x")), 1),
        ((P("x"), P(None, "x")), 1),
    ],
    ids=str,
)
def test_a_sharded_k_is_gathered(mesh, specs, gathers):
    """That operand alone, and it is never summed: another order of accumulation (R24)."""
    y, hlo = run(gemm, place(mesh, ONE_GEMM, (*specs, *REPLICATED)))
    assert collectives(hlo) == ["all-gather"] * gathers
    assert_bitwise_equal(y, gemm(*ONE_GEMM))


def test_m_and_n_over_one_axis(mesh):
    """The result cannot have both, so one operand is gathered."""
    y, hlo = run(gemm, place(mesh, ONE_GEMM, (P("x"), P("x"), *REPLICATED)))
    assert collectives(hlo) == ["all-gather"]
    assert_bitwise_equal(y, gemm(*ONE_GEMM))


def test_parts_of_unequal_size(mesh):
    """Inside a program they work; for an argument JAX itself refuses them."""
    both = NamedSharding(mesh, P("x", "y"))

    def function(a, b):
        y = gemm(a[:7], b[:5])
        return jax.lax.with_sharding_constraint(y, both)[:, :5] + 0

    operands = [x[0] for x in (A, B)]
    y = jax.jit(function, out_shardings=NamedSharding(mesh, P()))(*operands)
    assert_bitwise_equal(y, gemm(A[0, :7], B[0, :5]))
    with pytest.raises(ValueError, match="should evenly divide the shape"):
        jax.jit(gemm, in_shardings=both)(A[0, :7], B[0])


def test_one_device_needs_no_rule():
    """The program is the plain one, so its persistent compilation cache works."""
    alone = Mesh(np.array(jax.devices()[:1]), ("x",))
    operands = place(alone, ONE_GEMM, (P("x"), P(), *REPLICATED))
    text = jax.jit(gemm).lower(*operands).as_text()
    assert "mmaemu_scaled_mm_v" in text
    assert "CustomSPMDPartitioning" not in text


def test_what_jax_refuses_where_it_has_to_name_the_devices(mesh):
    other = Mesh(np.array(jax.devices()), ("z",))
    operands = place(mesh, ONE_GEMM[:1], (P("x"),)) + place(other, ONE_GEMM[1:2], (P("z"),))
    with pytest.raises(ValueError, match="mesh should be the same across the entire program"):
        jax.jit(gemm)(*operands)
    abstract = NamedSharding(mesh.abstract_mesh, P("x"))
    operands = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=abstract) for x in ONE_GEMM[:2]]
    with pytest.raises(ValueError, match="AbstractMesh cannot be used"):
        jax.jit(gemm).trace(*operands).lower(lowering_platforms=("cpu",))


def test_without_jax_s_private_name(mesh, monkeypatch):
    """A release that lacks it partitions nothing, and returns the same bits."""
    requiring = partition.prim_requires_devices_during_lowering
    assert requiring is not None, "this JAX needs another way to be asked for devices"
    monkeypatch.setattr(partition, "prim_requires_devices_during_lowering", None)
    requiring.discard(primitive.scaled_mm_p)
    try:
        partition.request_devices(primitive.scaled_mm_p)
        operands = place(mesh, ONE_GEMM, (P("x"), P("y"), *REPLICATED))
        y, hlo = run(lambda *operands: gemm(*operands), operands)
    finally:
        requiring.add(primitive.scaled_mm_p)
    assert "all-gather" in collectives(hlo)
    assert_bitwise_equal(y, gemm(*ONE_GEMM))


def test_on_another_device():
    device = jax.devices()[3]
    y = gemm(*(jax.device_put(x, device) for x in ONE_GEMM))
    assert y.devices() == {device}
    assert_bitwise_equal(y, gemm(*ONE_GEMM))


def test_public_functions(mesh):
    """scaled_mm, accumulate and dot, whose leading dimensions are a batch."""
    x, w = finite_codes(7, (16, 64)), finite_codes(8, (32, 64))
    arrays = place(mesh, (x, w), (P("x"), P("y")))
    fast = {"use_fast_accum": True, "splitk": 1}
    for function in (
        lambda x, w: mj.scaled_mm(x, w.T, 0.5, 2.0, out_dtype=jnp.bfloat16, **fast),
        lambda x, w: mj.accumulate(x, w, **fast),
    ):
        y, hlo = run(function, arrays)
        assert collectives(hlo) == []
        assert y.sharding.is_equivalent_to(NamedSharding(mesh, P("x", "y")), 2)
        assert_bitwise_equal(y, function(x, w))
    pairs = place(mesh, (A, A), (P("x", "y"),) * 2)
    y, hlo = run(mj.dot, pairs)
    assert collectives(hlo) == []
    assert_bitwise_equal(y, mj.dot(A, A))


# --------------------------------------------------------------------------------------- shard_map


@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_shard_map(mesh, check_vma, backend):
    specs = (P("x", None), P("y", None), P(), P())

    def local(*operands):
        return gemm(*operands, backend=backend)

    program = jax.shard_map(
        local, mesh=mesh, in_specs=specs, out_specs=P("x", "y"), check_vma=check_vma
    )
    assert_bitwise_equal(jax.jit(program)(*ONE_GEMM), gemm(*ONE_GEMM))


def test_shard_map_knows_what_varies(mesh):
    """The result varies over the axes that any operand varies over."""
    specs = (P("x", None), P("y", None), P(), P())

    def loop(*operands):
        start = jax.lax.pcast(jnp.zeros((M // 2, N // 2)), ("x", "y"), to="varying")
        return jax.lax.scan(lambda c, _: (gemm(*operands), None), start, length=2)[0]

    program = jax.jit(jax.shard_map(loop, mesh=mesh, in_specs=specs, out_specs=P("x", "y")))
    assert_bitwise_equal(program(*ONE_GEMM), gemm(*ONE_GEMM))
    with pytest.raises(ValueError, match="out_specs which require replication"):
        jax.shard_map(gemm, mesh=mesh, in_specs=specs, out_specs=P())(*ONE_GEMM)


def test_shard_map_over_some_axes(mesh):
    """The compiler takes no rule there: what is sharded over the other axes is gathered."""
    specs = (P("x", None), P(), P(), P())
    program = jax.shard_map(gemm, mesh=mesh, in_specs=specs, out_specs=P("x"), axis_names={"x"})
    y, hlo = run(program, place(mesh, ONE_GEMM, (P("x"), P("y"), *REPLICATED)))
    assert collectives(hlo) == ["all-gather"]
    assert_bitwise_equal(y, gemm(*ONE_GEMM))
