"""fp8_dot_general under JAX's transformations and on four devices: the bits of the plain call."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from training_cases import Case

import mmaemu_jax as mj
from mmaemu_jax import training
from mmaemu_jax.testing import assert_bitwise_equal
from mmaemu_jax.training import Quantization, Scaling, fp8_dot_general

DENSE = Case("mk", "kn", {"m": 64, "k": 32, "n": 64})
DELAYED = training.te_pytorch(history_length=4)
CURRENT = training.get_recipe("te_pytorch_current")
OPTIONS = {"profile": "hopper", "splitk": 1}


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    assert jax.device_count() == 4
    return Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))


def run(lhs, rhs, grad, state, *, recipe, dimension_numbers=DENSE.dimension_numbers, **options):
    """The result and the gradients of lhs, rhs and state."""

    def dot(lhs, rhs, state):
        return fp8_dot_general(
            lhs, rhs, dimension_numbers, recipe=recipe, state=state, **OPTIONS, **options
        )

    y, pull = jax.vjp(dot, lhs, rhs, state)
    return y, pull(grad)


def a_state(recipe=DELAYED, seed=0):
    """A state after some steps."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda x: jnp.asarray(rng.uniform(0.5, 2, x.shape), jnp.float32),
        training.init_state(recipe),
    )


@pytest.fixture(scope="module")
def plain():
    operands = (*DENSE.operands(jnp.bfloat16, seed=1), a_state())
    return operands, jax.jit(functools.partial(run, recipe=DELAYED))(*operands)


def test_eager_and_remat(plain):
    operands, want = plain
    assert_bitwise_equal(run(*operands, recipe=DELAYED), want)

    @jax.checkpoint
    def dot(lhs, rhs, state):
        return fp8_dot_general(
            lhs, rhs, DENSE.dimension_numbers, recipe=DELAYED, state=state, **OPTIONS
        )

    @jax.jit
    def with_remat(lhs, rhs, grad, state):
        y, pull = jax.vjp(dot, lhs, rhs, state)
        return y, pull(grad)

    assert_bitwise_equal(with_remat(*operands), want)


@pytest.mark.parametrize("spec", ["m", "n", "mn"])
def test_sharded_jit(plain, mesh, spec):
    """amax is that of the whole tensor, wherever its parts lie."""
    operands, want = plain
    x, y = ("x" if "m" in spec else None), ("y" if "n" in spec else None)
    specs = (P(x, None), P(None, y), P(x, y), P())
    placed = [
        jax.device_put(value, NamedSharding(mesh, s))
        for value, s in zip(operands, specs, strict=True)
    ]
    assert_bitwise_equal(jax.jit(functools.partial(run, recipe=DELAYED))(*placed), want)


@pytest.mark.parametrize("spec", ["m", "n", "mn"])
def test_explicit_mesh(plain, spec):
    """Types that carry shardings: the results have jnp.dot's, and the same bits."""
    operands, want = plain
    explicit = jax.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    x, y = ("x" if "m" in spec else None), ("y" if "n" in spec else None)
    specs = (P(x, None), P(None, y), P(x, y), P())
    with jax.set_mesh(explicit):
        placed = [
            jax.device_put(value, NamedSharding(explicit, s))
            for value, s in zip(operands, specs, strict=True)
        ]
        out, grads = jax.jit(functools.partial(run, recipe=DELAYED))(*placed)
    assert out.sharding.spec == P(x, y)
    assert_bitwise_equal((out, grads), want)


def test_sharded_batch(mesh):
    case = Case("bmk", "bkn", {"b": 4, "m": 16, "k": 32, "n": 16}, batch="b")
    program = functools.partial(run, recipe=CURRENT, dimension_numbers=case.dimension_numbers)
    operands = case.operands(jnp.bfloat16)
    want = jax.jit(program)(*operands, None)
    placed = [jax.device_put(x, NamedSharding(mesh, P(("x", "y")))) for x in operands]
    assert_bitwise_equal(jax.jit(program)(*placed, None), want)


@pytest.mark.parametrize("rhs_axis", [0, None])
def test_vmap_is_one_layer_for_each_element(rhs_axis):
    """Each element has an amax and a state of its own (R25)."""
    operands = [DENSE.operands(jnp.bfloat16, seed=s) for s in range(3)]
    lhs, rhs, grad = (jnp.stack(x) for x in zip(*operands, strict=True))
    states = [a_state(seed=s) for s in range(3)]
    state = jax.tree.map(lambda *x: jnp.stack(x), *states)
    program = jax.jit(functools.partial(run, recipe=DELAYED))
    weights = rhs if rhs_axis == 0 else rhs[0]
    got = jax.jit(jax.vmap(functools.partial(run, recipe=DELAYED), (0, rhs_axis, 0, 0)))(
        lhs, weights, grad, state
    )
    for i in range(3):
        want = program(lhs[i], rhs[i if rhs_axis == 0 else 0], grad[i], states[i])
        assert_bitwise_equal(jax.tree.map(lambda x, i=i: x[i], got), want)


def test_scan_over_layers():
    """Stacked weights and states; the gradient of the stack is the stack of updated states."""
    square = Case("mk", "kn", {"m": 16, "k": 32, "n": 32})
    x, _, _ = square.operands(jnp.bfloat16)
    weights = jnp.stack([square.operands(jnp.bfloat16, seed=s)[1] for s in (1, 2)])
    states = jax.tree.map(lambda *s: jnp.stack(s), a_state(seed=1), a_state(seed=2))

    def one(x, layer):
        w, state = layer
        return fp8_dot_general(
            x, w, square.dimension_numbers, recipe=DELAYED, state=state, **OPTIONS
        )

    def scanned(weights, states):
        y, _ = jax.lax.scan(lambda x, layer: (one(x, layer), None), x, (weights, states))
        return (y.astype(jnp.float32) ** 2).sum()

    def unrolled(weights, states):
        y = x
        for i in range(2):
            y = one(y, jax.tree.map(lambda v, i=i: v[i], (weights, states)))
        return (y.astype(jnp.float32) ** 2).sum()

    got = jax.jit(jax.grad(scanned, (0, 1)))(weights, states)
    assert_bitwise_equal(got, jax.jit(jax.grad(unrolled, (0, 1)))(weights, states))
    assert got[1].uses.tolist() == [1, 1]


# ------------------------------------------------------------------------------------- shard_map


def data_parallel(mesh, recipe, **options):
    """lhs and grad spread over "x" by rows; weights the same everywhere."""
    specs = (P("x"), P(), P("x"), P())
    out_specs = (P("x"), (P("x"), P(), P()))
    local = functools.partial(run, recipe=recipe, **options)
    return jax.jit(jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=out_specs))


def in_halves(operands):
    lhs, rhs, grad = operands
    return [(lhs[rows], rhs, grad[rows]) for rows in (slice(0, 32), slice(32, 64))]


def test_data_parallel_shard_map(mesh):
    """Local GEMMs with the amax of this device; the weights' gradient is summed over devices."""
    operands = DENSE.operands(jnp.bfloat16, seed=2)
    y, (dlhs, drhs, _) = data_parallel(mesh, CURRENT)(*operands, None)
    program = jax.jit(functools.partial(run, recipe=CURRENT))
    halves = [program(*half, None) for half in in_halves(operands)]
    assert_bitwise_equal(y, jnp.concatenate([h[0] for h in halves]))
    assert_bitwise_equal(dlhs, jnp.concatenate([h[1][0] for h in halves]))
    parts = [h[1][1].astype(jnp.float32) for h in halves]
    assert_bitwise_equal(drhs, (parts[0] + parts[1]).astype(jnp.bfloat16))


def test_amax_over_a_mesh_axis(mesh):
    """With amax_axes the state is shared, and scales are those of the whole tensor."""
    operands = (*DENSE.operands(jnp.bfloat16, seed=2), a_state())
    everywhere = training.te_pytorch(history_length=4, amax_axes=("x",))
    y, (dlhs, _, after) = data_parallel(mesh, everywhere)(*operands)
    want, (want_dlhs, _, want_after) = jax.jit(functools.partial(run, recipe=DELAYED))(*operands)
    assert_bitwise_equal((y, dlhs, after), (want, want_dlhs, want_after))
    with pytest.raises(ValueError, match=r"amax varies over the mesh axes \['x'\].*Ways out"):
        data_parallel(mesh, DELAYED)(*operands)


def test_a_state_for_each_device(mesh):
    operands = DENSE.operands(jnp.bfloat16, seed=2)
    states = [a_state(seed=s) for s in (1, 2)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *states)

    def local(lhs, rhs, grad, state):
        own = jax.tree.map(lambda x: x[0], state)
        y, (dlhs, drhs, after) = run(lhs, rhs, grad, own, recipe=DELAYED)
        return y, dlhs, drhs, jax.tree.map(lambda x: x[None], after)

    specs = (P("x"), P(), P("x"), P("x"))
    mapped = jax.shard_map(
        local, mesh=mesh, in_specs=specs, out_specs=(P("x"), P("x"), P(), P("x"))
    )
    y, _, _, after = jax.jit(mapped)(*operands, stacked)
    program = jax.jit(functools.partial(run, recipe=DELAYED))
    for i, (half, state) in enumerate(zip(in_halves(operands), states, strict=True)):
        want, (_, _, want_after) = program(*half, state)
        assert_bitwise_equal(y[32 * i : 32 * (i + 1)], want)
        assert_bitwise_equal(jax.tree.map(lambda x, i=i: x[i], after), want_after)


def test_contraction_of_the_weights_gradient(mesh):
    """A mesh, a virtual mesh, and the whole K gathered; without scales, which amax_axes share."""
    operands = DENSE.operands(jnp.bfloat16, seed=2)
    unit = {
        t: Quantization(CURRENT.quantization(t).format, Scaling(timing="unit"))
        for t in ("lhs", "rhs", "grad")
    }
    recipe = dataclasses.replace(CURRENT, **unit)
    program = functools.partial(run, recipe=recipe)

    def on_the_mesh(mode):
        how = {"wgrad": mj.Contraction(mode, axes=("x",))}
        return data_parallel(mesh, recipe, contraction=how)(*operands, None)[1][1]

    def on_one_device(mode):
        how = {"wgrad": mj.Contraction(mode, parts=2)}
        return jax.jit(functools.partial(program, contraction=how))(*operands, None)[1][1]

    whole = jax.jit(program)(*operands, None)[1][1]
    virtual = on_one_device("per_device")
    assert_bitwise_equal(on_the_mesh("per_device"), virtual)
    assert np.any(np.asarray(whole) != np.asarray(virtual))
    assert_bitwise_equal(on_the_mesh("gather"), whole)
    refused = {"wgrad": mj.Contraction("error", parts=2)}
    with pytest.raises(ValueError, match=r"fp8_dot_general \(wgrad\): K is spread over a virtual"):
        run(*operands, None, recipe=recipe, contraction=refused)
