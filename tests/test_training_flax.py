"""The drop-ins for Flax, and fp8_einsum behind them."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx, serialization
from flax.training.train_state import TrainState

from mmaemu_jax import training
from mmaemu_jax.testing import assert_bitwise_equal
from mmaemu_jax.training import Quantization, Scaling, apply_state, fp8_dot_general, fp8_einsum
from mmaemu_jax.training.flax import (
    Fp8DotGeneral,
    Fp8Einsum,
    Fp8Variable,
    NnxFp8DotGeneral,
    NnxFp8Einsum,
)

DELAYED = training.te_pytorch(history_length=4)
OPTIONS = {"profile": "hopper", "splitk": 1}
MATMUL = (((2,), (0,)), ((), ()))


def unit_recipe():
    """Saturating casts alone: a small program."""
    unit = Scaling(timing="unit")
    e4m3, e5m2 = (Quantization(f, unit) for f in ("e4m3", "e5m2"))
    return training.Recipe("unit", e4m3, e4m3, e5m2)


UNIT = unit_recipe()


def activations():
    return jnp.asarray(np.random.default_rng(0).standard_normal((2, 16, 32)), jnp.bfloat16)


class Model(linen.Module):
    """A layer with state, attention without, and a plain injected function."""

    @linen.compact
    def __call__(self, x):
        delayed = functools.partial(Fp8DotGeneral, DELAYED, OPTIONS)
        einsum = functools.partial(Fp8Einsum, UNIT, OPTIONS)
        unit = functools.partial(fp8_dot_general, recipe=UNIT, **OPTIONS)
        x = linen.Dense(32, dot_general_cls=delayed, dtype=jnp.bfloat16)(x)
        x = linen.MultiHeadDotProductAttention(
            2,
            dtype=jnp.bfloat16,
            qkv_dot_general=unit,
            out_dot_general=unit,
            qk_attn_weights_einsum_cls=einsum,
            attn_weights_value_einsum_cls=einsum,
        )(x)
        return linen.Dense(16, dot_general=unit, dtype=jnp.bfloat16)(x)


def test_linen_trains_with_flaxs_own_train_state():
    x, model = activations(), Model()
    variables = model.init(jax.random.key(0), x)
    train = TrainState.create(apply_fn=model.apply, params=variables, tx=optax.adam(1e-2))

    @jax.jit
    def step(train, x):
        def loss(variables):
            return (train.apply_fn(variables, x).astype(jnp.float32) ** 2).mean()

        value, grads = jax.value_and_grad(loss)(train.params)
        return train.apply_gradients(grads=grads), value

    losses = []
    for _ in range(3):
        train, value = step(train, x)
        losses.append(float(value))
    assert losses[2] < losses[1] < losses[0]
    (state,) = jax.tree.leaves(
        train.params["_overwrite_with_gradient"],
        is_leaf=lambda v: isinstance(v, training.Fp8State),
    )
    amax = np.abs(np.asarray(x, np.float32)).max()
    assert_bitwise_equal(np.asarray(state.lhs.scale), np.float32(448) / amax)
    assert_bitwise_equal(np.asarray(state.lhs.amax_history), np.array([0, *[amax] * 3], np.float32))
    restored = serialization.from_bytes(train, serialization.to_bytes(train))
    assert_bitwise_equal(restored.params, jax.tree.map(np.asarray, train.params))


def test_linen_layer_is_the_function():
    x = activations()
    dense = linen.Dense(
        16,
        use_bias=False,
        dtype=jnp.bfloat16,
        dot_general_cls=functools.partial(Fp8DotGeneral, DELAYED, OPTIONS),
    )
    variables = dense.init(jax.random.key(1), x)
    kernel = variables["params"]["kernel"].astype(jnp.bfloat16)
    state = training.init_state(DELAYED)
    want = fp8_dot_general(x, kernel, MATMUL, recipe=DELAYED, state=state, **OPTIONS)
    assert_bitwise_equal(dense.apply(variables, x), want)


class NnxModel(nnx.Module):
    def __init__(self, rngs):
        self.linear = nnx.Linear(
            32, 64, rngs=rngs, dtype=jnp.bfloat16, dot_general=NnxFp8DotGeneral(DELAYED, **OPTIONS)
        )
        self.einsum = nnx.Einsum(
            "bsk,kn->bsn", (64, 16), rngs=rngs, einsum_op=NnxFp8Einsum(UNIT, **OPTIONS)
        )

    def __call__(self, x):
        return self.einsum(nnx.relu(self.linear(x)))


def test_nnx_trains():
    x, model = activations(), NnxModel(nnx.Rngs(0))
    optimiser = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimiser, x):
        def loss(model):
            return (model(x).astype(jnp.float32) ** 2).mean()

        wrt = nnx.DiffState(0, nnx.Any(nnx.Param, Fp8Variable))
        value, grads = nnx.value_and_grad(loss, argnums=wrt)(model)
        grads, new_state = nnx.split_state(grads, nnx.Param, Fp8Variable)
        optimiser.update(model, grads)
        nnx.update(model, apply_state(nnx.state(model, Fp8Variable), new_state))
        return value

    losses = [float(step(model, optimiser, x)) for _ in range(3)]
    assert losses[2] < losses[1] < losses[0]
    assert model.einsum.einsum_op.state is None
    state = model.linear.dot_general.state.get_value()
    amax = np.abs(np.asarray(x, np.float32)).max()
    assert_bitwise_equal(np.asarray(state.lhs.scale), np.float32(448) / amax)


# ------------------------------------------------------------------------------------- fp8_einsum


@pytest.mark.parametrize(
    ("subscripts", "lhs_shape", "rhs_shape"),
    [
        ("bsk,kn->bsn", (2, 16, 32), (32, 16)),
        ("mk,kn->nm", (16, 32), (32, 16)),
        ("...qhd,...khd->...hqk", (2, 16, 2, 16), (2, 32, 2, 16)),
        ("...hqk,...khd->...qhd", (2, 2, 16, 32), (2, 32, 2, 16)),
        ("ab , bc", (16, 32), (32, 16)),
    ],
)
def test_einsum_is_exact_on_small_integers(subscripts, lhs_shape, rhs_shape):
    """Products and sums that no rounding touches: the dimensions alone can be wrong."""
    rng = np.random.default_rng(0)
    lhs, rhs = (jnp.asarray(rng.integers(-2, 3, s), jnp.float32) for s in (lhs_shape, rhs_shape))
    got = fp8_einsum(subscripts, lhs, rhs, recipe=UNIT, **OPTIONS)
    assert_bitwise_equal(got, jnp.einsum(subscripts, lhs, rhs))


def test_einsum_keeps_the_roles_of_its_operands():
    """jnp.einsum would exchange them here; only the weights are E5M2."""
    recipe = dataclasses.replace(
        UNIT, rhs=Quantization("e5m2", Scaling(timing="unit")), grad=UNIT.lhs
    )
    lhs, rhs = jnp.full((16, 32), 1.125, jnp.float32), jnp.full((32, 16), 1.125, jnp.float32)
    got = fp8_einsum("mk,kn->nm", lhs, rhs, recipe=recipe, **OPTIONS)
    assert_bitwise_equal(got, jnp.full((16, 16), 32 * 1.125 * 1.0, jnp.float32))


@pytest.mark.parametrize(
    ("subscripts", "match"),
    [
        ("mk,kn,no->mo", "does not have two operands"),
        ("mk->m", "does not have two operands"),
        ("mk,kn->m", "sums a dimension of one operand"),
        ("mm,mn->mn", "repeats a letter"),
        ("mkx,kn->mn", "names 3 dimensions of an operand with 2"),
        ("...mk,...akn->...mn", "does not fit operands"),
    ],
)
def test_einsums_that_are_refused(subscripts, match):
    x = jnp.ones((16, 16))
    with pytest.raises(ValueError, match=f"fp8_einsum: .*{match}.*Ways out"):
        fp8_einsum(subscripts, x, x, recipe=UNIT)
