"""emulate: dots whose K is spread over devices, or over a virtual mesh."""

import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from emulate_cases import (
    BF16,
    F32,
    A,
    B,
    K,
    M,
    S,
    T,
    dot,
    emulate,
    only,
    plain,
    reason,
    scaled,
)
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import mmaemu_jax as mj
from mmaemu_jax.testing import assert_bitwise_equal

pytestmark = pytest.mark.filterwarnings("ignore::mmaemu_jax.errors.ExperimentalPresetWarning")


DIMS, AS_F32 = (((1,), (0,)), ((), ())), {"preferred_element_type": F32}


@pytest.fixture(scope="module")
def mesh():
    return Mesh(np.array(jax.devices()).reshape(4), ("x",))


def sliced(mesh, fn=dot, check_vma=True):
    def local(a, b):
        return lax.psum(fn(a, b), "x")

    specs = (P(None, "x"), P("x", None))
    return jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=P(), check_vma=check_vma)


def slices(a, b, parts=4):
    return [(a[:, i : i + K // parts], b[i : i + K // parts]) for i in range(0, K, K // parts)]


def summed(parts):
    total = np.asarray(parts[0])
    for part in parts[1:]:
        total = total + np.asarray(part)
    return total


def test_k_spread_in_a_shard_map_is_reported(mesh):
    fn = jax.jit(sliced(mesh))
    assert "K is spread over mesh axes ('x',)" in reason(fn, A, B)
    gemm = emulate(fn).report(A, B).emulated[0]
    assert (gemm.K, gemm.times) == (K // 4, 4)
    with pytest.raises(ValueError, match="K of a dot is spread over mesh axes"):
        emulate(fn, contraction="error")(A, B)


@pytest.mark.parametrize("check_vma", [True, False])
def test_contractions_in_a_shard_map(mesh, check_vma):
    fn = jax.jit(sliced(mesh, check_vma=check_vma))
    per_device = [plain(*jnp_pair) for jnp_pair in map(padded_k, slices(A, B))]
    y = emulate(fn, contraction="per_device")(A, B)
    assert_bitwise_equal(y, summed(per_device))
    y = emulate(fn, contraction=mj.Contraction("gather", axes=("x",)))(A, B)
    assert_bitwise_equal(y, plain(A, B))


def padded_k(pair):
    a, b = pair
    extra = -a.shape[1] % 16
    return jnp.pad(a, ((0, 0), (0, extra))), jnp.pad(b, ((0, extra), (0, 0)))


def test_a_folded_scale_and_a_transpose_before_the_sum(mesh):
    def fn(a, b):
        return (dot(a, b, dtype=BF16) * jnp.bfloat16(0.3)).T

    y = emulate(jax.jit(sliced(mesh, fn)), contraction="per_device")(A, B)
    parts = [plain(*p, ml_dtypes.bfloat16(0.3), dtype=BF16) for p in map(padded_k, slices(A, B))]
    total = summed([np.asarray(p).astype(np.float32) for p in parts])
    assert_bitwise_equal(y, total.astype(ml_dtypes.bfloat16).T)


def test_a_virtual_mesh_replays_tensor_parallelism(mesh):
    how = mj.Contraction("per_device", parts=4)
    assert only(dot, A, B, contraction=how).K == K // 4
    real = emulate(jax.jit(sliced(mesh)), contraction="per_device")(A, B)
    assert_bitwise_equal(jax.jit(emulate(dot, contraction=how))(A, B), real)


def test_a_virtual_mesh_reduces_before_it_scales():
    how = mj.Contraction("per_device", parts=4)
    gemm = only(scaled, A, B, S, T, contraction=how)
    assert (gemm.epilogue, "reduced before" in gemm.note) == ("", True)
    fn = functools.partial(dot, dtype=BF16)
    y = jax.jit(jnp.multiply)(emulate(fn, contraction=how)(A, B), (S * T).astype(BF16))
    assert_bitwise_equal(emulate(scaled, contraction=how)(A, B, S, T), y)


def test_k_sharded_under_jit_is_gathered(mesh):
    a, b = (jax.device_put(x, NamedSharding(mesh, s)) for x, s in ((A, P(None, "x")), (B, P("x"))))
    assert_bitwise_equal(jax.jit(emulate(dot))(a, b), plain(A, B))


def test_a_sum_over_an_axis_of_vmap_is_no_sum_over_devices():
    def fn(a):
        return lax.psum(dot(a, B), "i")

    a = A.reshape(2, M // 2, K)
    y = jax.vmap(emulate(fn), axis_name="i")(a)
    first, second = (np.asarray(plain(x, B)) for x in a)
    assert_bitwise_equal(y, np.broadcast_to(first + second, (2, *first.shape)))


def test_a_contraction_over_a_mesh_in_force(mesh):
    with jax.set_mesh(mesh):
        how = mj.Contraction("per_device", axes=("x",))
        y = jax.jit(emulate(dot, contraction=how))(A, B)
    virtual = emulate(dot, contraction=mj.Contraction("per_device", parts=4))(A, B)
    assert_bitwise_equal(np.asarray(y), virtual)


def test_k_spread_by_types():
    mesh = jax.make_mesh((4,), ("x",))
    fn = jax.jit(lambda a, b: lax.dot_general(a, b, DIMS, out_sharding=P(), **AS_F32))
    virtual = emulate(dot, contraction=mj.Contraction("per_device", parts=4))(A, B)
    with jax.set_mesh(mesh):
        a, b = (
            jax.device_put(v, NamedSharding(mesh, s)) for v, s in ((A, P(None, "x")), (B, P("x")))
        )
        assert only(fn, a, b, contraction="per_device").K == K // 4
        per_device = emulate(fn, contraction="per_device")(a, b)
        gathered = emulate(fn)(a, b)
        with pytest.raises(ValueError, match="K is spread over mesh axes"):
            emulate(fn, contraction="error")(a, b)
    assert_bitwise_equal(np.asarray(per_device), virtual)
    assert_bitwise_equal(np.asarray(gathered), plain(A, B))


def test_explicit_sharding():
    mesh = jax.make_mesh((2, 2), ("x", "y"))
    with jax.set_mesh(mesh):
        a, b = (
            jax.device_put(v, NamedSharding(mesh, s))
            for v, s in ((A, P("x", None)), (B, P(None, "y")))
        )
        y = jax.jit(emulate(lambda a, b: jax.checkpoint(dot)(a, b) * S))(a, b)
        assert jax.typeof(y).sharding.spec == P("x", "y")
    assert_bitwise_equal(np.asarray(y), plain(A, B, S))


def test_a_mean_over_devices_of_something_else_is_not_a_contraction(mesh):
    def local(a, b):
        return lax.pmean(jnp.max(dot(a, b)), "x")

    fn = jax.shard_map(local, mesh=mesh, in_specs=(P("x"), P()), out_specs=P())
    assert emulate(fn).report(A, B).left == ()
