"""The state of delayed scaling: what leaves the backward pass, and who keeps it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from training_oracles import te_update

import mmaemu_jax as mj
from mmaemu_jax import training
from mmaemu_jax.testing import assert_bitwise_equal
from mmaemu_jax.training import apply_state, fp8_dot_general, init_state

RECIPE = training.te_pytorch(history_length=3)
MATMUL = (((1,), (0,)), ((), ()))
dot = functools.partial(
    fp8_dot_general, dimension_numbers=MATMUL, recipe=RECIPE, profile="hopper", splitk=1
)


def test_which_recipes_have_a_state():
    for name in training.list_recipes():
        state = init_state(name)
        assert (state is None) == ("current" in name or "torchao" in name)
        if state is not None:
            assert state.lhs.amax_history.shape == (1024,)
            assert float(state.grad.scale) == 1.0
            assert {x.dtype for x in jax.tree.leaves(state)} == {np.dtype(np.float32)}
    with pytest.raises(ValueError, match="init_state: unknown recipe"):
        init_state("te")


def test_steps_with_optax_follow_transformer_engine():
    """Weights and state after each step; every scale is that of the history before the step."""
    rng = np.random.default_rng(0)
    params = {"w": jnp.asarray(rng.standard_normal((32, 16)) * 0.1, jnp.bfloat16)}
    state = {"layer": init_state(RECIPE)}
    optimiser = optax.sgd(0.5)
    optimiser_state = optimiser.init(params)

    def loss(params, state, x, target):
        y = dot(x, params["w"], state=state["layer"])
        return (y * target).astype(jnp.float32).sum()  # so that the gradient of y is target

    @jax.jit
    def step(params, state, optimiser_state, x, target):
        grads, new_state = jax.grad(loss, (0, 1))(params, state, x, target)
        updates, optimiser_state = optimiser.update(grads, optimiser_state)
        return optax.apply_updates(params, updates), apply_state(state, new_state), optimiser_state

    oracles = [(np.zeros(3, np.float32), np.float32(1)) for _ in range(3)]
    for factor in (1.0, 4.0, 0.25, 0.0, 2.0):
        x = jnp.asarray(rng.standard_normal((16, 32)) * factor, jnp.bfloat16)
        target = jnp.asarray(rng.standard_normal((16, 16)) * 1e-3, jnp.bfloat16)
        weights = params["w"]
        params, state, optimiser_state = step(params, state, optimiser_state, x, target)
        amaxes = [np.abs(np.asarray(t, np.float32)).max() for t in (x, weights, target)]
        oracles = [
            te_update(*oracle, amax, largest)
            for oracle, amax, largest in zip(oracles, amaxes, (448.0, 448.0, 57344.0), strict=True)
        ]
        layer = state["layer"]
        for got, (history, scale) in zip((layer.lhs, layer.rhs, layer.grad), oracles, strict=True):
            assert_bitwise_equal(np.asarray(got.amax_history), history)
            assert_bitwise_equal(np.asarray(got.scale), np.asarray(scale))
        assert float(layer.uses) == 0
        assert np.any(np.asarray(weights) != np.asarray(params["w"])) or factor == 0


def test_states_that_no_or_several_backward_passes_used():
    state = {"a": init_state(RECIPE), "b": init_state(RECIPE), "count": jnp.int32(3)}
    x = jnp.ones((16, 16), jnp.bfloat16)

    def loss(state, passes):
        y = x
        for _ in range(passes):
            y = dot(y, x, state=state["a"])
        return y.astype(jnp.float32).sum()

    gradient = functools.partial(jax.grad(loss, allow_int=True), passes=1)
    after = apply_state(state, gradient(state))
    assert_bitwise_equal(after["b"], state["b"])
    assert after["count"] is state["count"]
    assert float(after["a"].lhs.scale) == 448.0
    twice = functools.partial(jax.grad(loss, allow_int=True), passes=2)
    with pytest.raises(ValueError, match=r"used by 2 backward passes.*Ways out:.*of its own"):
        apply_state(state, twice(state))
    under_jit = jax.jit(lambda state: apply_state(state, twice(state)))(state)
    assert np.isnan(under_jit["a"].lhs.scale)
    assert_bitwise_equal(under_jit["b"], state["b"])


def test_a_tensor_that_no_fp8_gemm_needs_keeps_its_state():
    recipe = mj.training.Recipe(
        "forward only",
        RECIPE.lhs,
        RECIPE.rhs,
        RECIPE.grad,
        dgrad=training.Gemm(("grad", "rhs"), False, fp8=False),
        wgrad=training.Gemm(("grad", "lhs"), False, fp8=False),
    )
    state = init_state(recipe)
    x = jnp.ones((16, 16), jnp.bfloat16)

    def loss(state):
        return dot(x, x, state=state, recipe=recipe).astype(jnp.float32).sum()

    after = apply_state(state, jax.grad(loss)(state))
    assert_bitwise_equal(after.grad, state.grad)
    assert float(after.lhs.scale) == 448.0
