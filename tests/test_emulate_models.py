"""emulate on models: nothing eligible is left, and flax trains with the GEMMs it should run."""

import functools

import fp8_models
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest
from flax.linen import fp8_ops
from fp8_models import X
from jax.core import eval_jaxpr
from jax.extend.core import Jaxpr

import mmaemu_jax as mj
from mmaemu_jax.testing import assert_bitwise_equal
from mmaemu_jax.transforms.flow import is_fp8
from mmaemu_jax.transforms.jaxprs import open_jaxpr, sub_jaxprs, walk

pytestmark = [
    pytest.mark.filterwarnings("ignore::mmaemu_jax.errors.ExperimentalPresetWarning"),
    pytest.mark.filterwarnings("ignore:.*Fp8DotGeneralOp is deprecated:DeprecationWarning"),
]
GEMM = "mmaemu_scaled_mm"


@pytest.fixture(scope="module")
def fixtures():
    return fp8_models.fixtures()


NAMES = (
    "dense",
    "dense, backward",
    "einsum",
    "einsum, backward",
    "qdq",
    "qdq, backward",
    "attention",
    "layers",
    "inference",
    "experts",
)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_eligible_is_left(fixtures, name):
    fn, args, gemms = fixtures[name]
    emulated = mj.emulate(fn, splitk=1)
    report = emulated.report(*args)
    assert (len(report.emulated), report.left) == (gemms, ())
    eqns = [occurrence.eqn for occurrence in walk(jax.make_jaxpr(emulated)(*args))]
    assert sum(eqn.primitive.name == GEMM for eqn in eqns) == gemms
    dots = [eqn for eqn in eqns if eqn.primitive.name == "dot_general"]
    assert not any(any(map(is_fp8, eqn.invars)) for eqn in dots)
    again = mj.emulate(emulated).report(*args)
    assert (again.emulated, again.left) == ((), ())


def test_every_fixture_is_tested(fixtures):
    assert tuple(fixtures) == NAMES


# ---------------------------------------------------------------------------- training flax's model

STEPS = 10
MODEL = fp8_models.DenseModel()
OPTIMIZER = optax.sgd(0.5)
TARGET = fp8_models.normal(9, X.shape)


def train_step(state, x):
    """One step; flax keeps the scales among the parameters and overwrites them by gradients."""
    variables, optimizer_state = state

    def loss(variables):
        return jnp.mean((MODEL.apply(variables, x) - TARGET).astype(jnp.float32) ** 2)

    value, gradients = jax.value_and_grad(loss)(variables)
    params = variables["params"]
    updates, optimizer_state = OPTIMIZER.update(gradients["params"], optimizer_state, params)
    scales = gradients[fp8_ops.OVERWRITE_WITH_GRADIENT]
    updated = {
        "params": optax.apply_updates(params, updates),
        fp8_ops.OVERWRITE_WITH_GRADIENT: scales,
    }
    return (updated, optimizer_state), value


def initial_state():
    variables = MODEL.init(jax.random.key(0), X)
    return variables, OPTIMIZER.init(variables["params"])


def batches():
    return [X * jnp.bfloat16(1 + 0.1 * i) for i in range(STEPS)]


class Checked:
    """Evaluates a jaxpr and compares every emulated GEMM in it with a direct scaled_mm call."""

    def __init__(self):
        self.gemms = []

    def __call__(self, closed, *args):
        return self._evaluate(open_jaxpr(closed), closed.consts, args)

    def _evaluate(self, jaxpr, consts, args):
        values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))

        def value(atom):
            return atom.val if hasattr(atom, "val") else values[atom]

        for eqn in jaxpr.eqns:
            operands = [value(atom) for atom in eqn.invars]
            inner = sub_jaxprs(eqn)
            if eqn.primitive.name in ("jit", "pjit", "custom_vjp_call", "custom_jvp_call"):
                (sub,) = inner
                out = self._evaluate(
                    open_jaxpr(sub.jaxpr), getattr(sub.jaxpr, "consts", ()), operands
                )
            else:
                assert not any(o.eqn.primitive.name == GEMM for s in inner for o in walk(s.jaxpr))
                invars = list(dict.fromkeys(x for x in eqn.invars if not hasattr(x, "val")))
                single = Jaxpr([], invars, eqn.outvars, [eqn], eqn.effects, jaxpr.debug_info)
                out = eval_jaxpr(single, (), *(values[v] for v in invars))
                if eqn.primitive.name == GEMM:
                    self._check(eqn.params["params"], operands, out[0])
            values.update(zip(eqn.outvars, out, strict=True))
        return [value(atom) for atom in jaxpr.outvars]

    def _check(self, params, operands, result):
        a, b, scale_a, scale_b = (np.asarray(x) for x in operands)
        fast = params.plan.chunk_k == 0
        desired = mj.scaled_mm(
            a,
            np.ascontiguousarray(b.T if params.b_layout == "nk" else b),
            scale_a.reshape(()),
            scale_b.reshape(()),
            out_dtype=params.out_dtype,
            use_fast_accum=fast,
            splitk=1,
            profile="hopper",
        )
        assert_bitwise_equal(result, desired)
        self.gemms.append((a.dtype, b.dtype, fast, float(scale_a), float(scale_b)))


@pytest.mark.parametrize("epilogue", ["xla", "jaxpr"])
def test_flax_trains_on_emulated_gemms(epilogue):
    emulated = mj.emulate(train_step, splitk=1, epilogue=epilogue)
    report = emulated.report(initial_state(), X)
    assert (len(report.emulated), report.left) == (5, ())
    closed = jax.make_jaxpr(emulated)(initial_state(), X)
    step, checked = jax.jit(emulated), Checked()
    state, losses = initial_state(), []
    for x in batches():
        checked(closed, *jax.tree.leaves((state, x)))
        state, loss = step(state, x)
        losses.append(float(loss))
    assert losses[-1] < losses[0]
    assert len(checked.gemms) == 5 * STEPS
    kinds = [tuple(map(str, gemm[:3])) for gemm in checked.gemms]
    forward, backward = ("float8_e4m3fn",) * 2, ("float8_e5m2", "float8_e4m3fn")
    assert kinds == ([(*forward, "True")] * 2 + [(*backward, "False")] * 3) * STEPS
    scales = {gemm[3] for gemm in checked.gemms}
    assert {gemm[4] for gemm in checked.gemms} == {1.0}
    if epilogue == "jaxpr":
        assert scales == {1.0}
    else:
        assert len(scales) > 2 * STEPS  # they follow the data
        assert scales == {float(ml_dtypes.bfloat16(s)) for s in scales}  # as flax rounds them


class DirectDots:
    """flax's dots as direct scaled_mm calls, without emulate.

    It stands for ``jax.lax`` and ``dequantize`` in flax's module. A GEMM's result, transposed or
    not, is remembered with its call, so that its scaling can be done by the call instead.
    """

    def __init__(self, folds: bool):
        self._folds, self._calls = folds, {}

    def __getattr__(self, name):
        return getattr(jax.lax, name)

    def dot_general(self, a, b, dims, precision=None, preferred_element_type=None):
        (contract_a, contract_b), (batch_a, batch_b) = dims
        assert not [*batch_a, *batch_b]
        free_a = [i for i in range(a.ndim) if i not in contract_a]
        free_b = [i for i in range(b.ndim) if i not in contract_b]
        k = int(np.prod([a.shape[i] for i in contract_a]))

        def call(scale):
            y = mj.scaled_mm(
                a.transpose(*free_a, *contract_a).reshape(-1, k),
                b.transpose(*contract_b, *free_b).reshape(k, -1),
                scale,
                1.0,
                out_dtype=preferred_element_type,
                use_fast_accum=precision == jax.lax.Precision.DEFAULT,
                splitk=1,
                profile="hopper",
            )
            return y.reshape(*(a.shape[i] for i in free_a), *(b.shape[i] for i in free_b))

        return self._remember(call(1.0), call)

    def transpose(self, x, axes):
        _, call = self._calls[id(x)]
        return self._remember(
            jax.lax.transpose(x, axes), lambda scale: jax.lax.transpose(call(scale), axes)
        )

    def dequantize(self, x, dtype, scale):
        _, call = self._calls[id(x)]
        scale = jax.lax.reduce_precision(scale.reshape(()), 8, 7)  # to bfloat16
        return call(scale) if self._folds else x * scale.astype(dtype)

    def out_dq(self):
        """flax's scaling of a forward product, whose derivative is flax's own."""

        @functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
        def out_dq(dq_type, lhs_scale, rhs_scale, out):
            raise AssertionError("only the training step's derivative is taken")

        def forward(dtype, lhs_scale, rhs_scale, out):
            return self.dequantize(out, dtype, lhs_scale * rhs_scale), None

        out_dq.defvjp(forward, fp8_ops.out_dq_bwd)
        return out_dq

    def _remember(self, y, call):
        self._calls[id(y)] = y, call
        return y


@pytest.mark.parametrize("epilogue", ["xla", "jaxpr"])
def test_flax_trains_as_with_direct_calls(epilogue, monkeypatch):
    emulated = jax.jit(mj.emulate(train_step, splitk=1, epilogue=epilogue))
    direct = jax.jit(lambda state, x: train_step(state, x))
    state, other = initial_state(), initial_state()
    dots = DirectDots(folds=epilogue == "xla")
    for x in batches():
        state, loss = emulated(state, x)
        with monkeypatch.context() as patch:
            patch.setattr(fp8_ops, "lax", dots)
            patch.setattr(fp8_ops, "dequantize", dots.dequantize)
            patch.setattr(fp8_ops, "out_dq", dots.out_dq())
            other, other_loss = direct(other, x)
        jax.tree.map(assert_bitwise_equal, (state, loss), (other, other_loss))


def test_gradients_outside_and_inside_agree():
    loss, args = fp8_models.flax_loss(MODEL)
    outside = jax.jit(jax.grad(mj.emulate(loss, splitk=1)))(*args)
    inside = jax.jit(mj.emulate(jax.grad(loss), splitk=1))(*args)
    jax.tree.map(assert_bitwise_equal, outside, inside)
    assert any(np.any(np.asarray(g) != 0) for g in jax.tree.leaves(outside["params"]))
