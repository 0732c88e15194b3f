"""The primitive in partitioned programs, on four CPU devices (conftest.py).

Partitioning itself is a later layer. What is proved here is that the primitive can carry it:
custom_vjp(custom_vmap(custom_partitioning(primitive))) needs public JAX alone.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gemms import finite_codes, gemm, ordinary_scales
from jax.custom_batching import custom_vmap
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from mmaemu_jax.testing import assert_bitwise_equal

M, N, K, BATCH = 16, 24, 96, 4
A, B = finite_codes(1, (BATCH, M, K)), finite_codes(2, (BATCH, N, K))
SCALE_A, SCALE_B = ordinary_scales(3, (BATCH,)), ordinary_scales(4, (BATCH,))
OPERANDS = (A, B, SCALE_A, SCALE_B)
ONE_GEMM = tuple(x[0] for x in OPERANDS)
COLLECTIVE = r"all-gather|all-reduce|all-to-all|reduce-scatter|collective-\w+"


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    assert jax.device_count() == 4
    return Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))


# ------------------------------------------------------------------------- the later composition


@custom_partitioning
def partitioned(a, b, scale_a, scale_b):
    """[B, M, K], [B, N, K], [B], [B] -> [B, M, N]."""
    return gemm(a, b, scale_a, scale_b)


def partition(mesh, arg_shapes, result_shape):
    """Batch, M and N stay where they are; K is gathered, never summed (R24)."""
    spec = (*result_shape.sharding.spec, None, None, None)
    batch, m, n = spec[:3]
    specs = (P(batch, m, None), P(batch, n, None), P(batch), P(batch))
    in_shardings = tuple(NamedSharding(mesh, s) for s in specs)
    return mesh, gemm, NamedSharding(mesh, P(batch, m, n)), in_shardings


partitioned.def_partition(
    partition=partition,
    sharding_rule="b m k, b n k, b, b -> b m n",
    need_replication_factors=("k",),
)


@custom_vmap
def batched(*operands):
    return partitioned(*operands)


@batched.def_vmap
def batched_rule(size, is_batched, *operands):
    """Folds the new dimension into the batch."""
    operands = [
        x if mapped else jnp.broadcast_to(x, (size, *x.shape))
        for x, mapped in zip(operands, is_batched, strict=True)
    ]
    y = batched(*(x.reshape(-1, *x.shape[2:]) for x in operands))
    return y.reshape(size, -1, *y.shape[1:]), True


@jax.custom_vjp
def composed(a, b, scale_a, scale_b):
    return batched(a[None], b[None], scale_a[None], scale_b[None])[0]


def forward(*operands):
    y = composed(*operands)
    return y, (y, operands)


def backward(residuals, cotangent):
    y, (a, b, scale_a, scale_b) = residuals
    return jnp.zeros_like(a), jnp.zeros_like(b), (cotangent * y).sum() / scale_a, scale_b


composed.defvjp(forward, backward)


def place(mesh: Mesh, operands, specs):
    return [jax.device_put(x, NamedSharding(mesh, s)) for x, s in zip(operands, specs, strict=True)]


def run(program, operands):
    """The result, and the collectives in the compiled program, which calls the kernel."""
    compiled = program.lower(*operands).compile()
    hlo = compiled.as_text()
    assert "mmaemu_scaled_mm" in hlo
    return compiled(*operands), re.findall(rf"(?:{COLLECTIVE})(?=[\w.-]*\()", hlo)


@pytest.mark.parametrize("out_spec", [P("x", "y"), None], ids=["asked", "propagated"])
def test_m_and_n_partition_without_collectives(mesh, out_spec):
    operands = place(mesh, ONE_GEMM, (P("x", None), P("y", None), P(), P()))
    asked = {"out_shardings": NamedSharding(mesh, out_spec)} if out_spec else {}
    y, collectives = run(jax.jit(composed, **asked), operands)
    assert not collectives
    assert y.sharding.is_equivalent_to(NamedSharding(mesh, P("x", "y")), 2)
    assert_bitwise_equal(y, gemm(*ONE_GEMM))


def test_a_sharded_k_is_gathered(mesh):
    """And never summed: partial sums would be another accumulation order (R24)."""
    operands = place(mesh, ONE_GEMM, (P("x", "y"), P(None, "y"), P(), P()))
    y, collectives = run(jax.jit(composed), operands)
    assert "all-gather" in collectives
    assert not {"all-reduce", "reduce-scatter"} & set(collectives)
    assert_bitwise_equal(y, gemm(*ONE_GEMM))


def test_batch_partitions_under_vmap(mesh):
    specs = (P("x", "y"), P("x"), P("x"), P("x"))
    y, collectives = run(jax.jit(jax.vmap(composed)), place(mesh, OPERANDS, specs))
    assert not collectives
    assert y.sharding.is_equivalent_to(NamedSharding(mesh, P("x", "y")), 3)
    assert_bitwise_equal(y, gemm(*OPERANDS))


@pytest.mark.parametrize("in_axes", [(0, None, None, None), (None, 0, 0, None), (0, 0, None, 0)])
def test_composed_under_vmap(in_axes):
    operands = [x if axis == 0 else x[0] for x, axis in zip(OPERANDS, in_axes, strict=True)]
    y = jax.jit(jax.vmap(composed, in_axes=in_axes))(*operands)
    assert_bitwise_equal(y, jax.vmap(gemm, in_axes=in_axes)(*operands))


def test_composed_under_other_transformations(mesh):
    operands = place(mesh, ONE_GEMM, (P("x", None), P("y", None), P(), P()))
    desired = gemm(*ONE_GEMM)
    assert_bitwise_equal(jax.jit(jax.checkpoint(composed))(*operands), desired)
    nested = jax.vmap(jax.vmap(composed, (0, None, None, None)), (None, 0, 0, None))
    y = nested(A, B, SCALE_A, SCALE_B[0])
    assert_bitwise_equal(y[2, 1], gemm(A[1], B[2], SCALE_A[2], SCALE_B[0]))

    def loss(scale_a):
        return composed(*operands[:2], scale_a, operands[3]).sum()

    grad = jax.jit(jax.grad(loss))(operands[2])
    assert_bitwise_equal(grad, jax.jit(lambda y, s: y.sum() / s)(desired, SCALE_A[0]))


# ------------------------------------------------------------------------------------- shard_map


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


def test_plain_primitive_on_sharded_operands(mesh):
    """Without partitioning it is replicated, which is slow but right."""
    operands = place(mesh, ONE_GEMM, (P("x", None), P("y", None), P(), P()))
    assert_bitwise_equal(jax.jit(gemm)(*operands), gemm(*ONE_GEMM))


def test_on_another_device():
    device = jax.devices()[3]
    y = gemm(*(jax.device_put(x, device) for x in ONE_GEMM))
    assert y.devices() == {device}
    assert_bitwise_equal(y, gemm(*ONE_GEMM))
