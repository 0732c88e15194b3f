"""emulate: the function it returns, its report and its derivatives."""

import functools
import json

import jax
import jax.numpy as jnp
import ml_dtypes
import pytest
from emulate_cases import (
    BF16,
    E4M3,
    E5M2,
    F32,
    A,
    B,
    K,
    M,
    N,
    S,
    dot,
    emulate,
    equations,
    only,
    plain,
)
from jax import lax

import mmaemu_jax as mj
from mmaemu_jax.testing import assert_bitwise_equal

pytestmark = pytest.mark.filterwarnings("ignore::mmaemu_jax.errors.ExperimentalPresetWarning")


# ------------------------------------------------------------------------------ the function itself


def test_arguments_of_any_kind():
    def fn(tree, *, b, flag, name=None):
        return {"y": dot(tree[0], b) if flag else tree, "name": tree[1]["n"] + len(name)}

    out = emulate(fn)((A, {"n": 3}), b=B, flag=True, name="abc")
    assert_bitwise_equal(out["y"], plain(A, B))
    assert int(out["name"]) == 6
    jitted = jax.jit(dot, static_argnames="precision")
    assert_bitwise_equal(emulate(jitted)(A, B, precision="highest"), plain(A, B, fast=False))
    assert emulate(dot).__name__ == "dot"


def test_a_jit_stays_a_jit_and_is_compiled_once():
    traces = []

    @jax.jit
    def step(a, b):
        traces.append(1)
        return dot(a, b)

    fn = emulate(step)
    for _ in range(3):
        fn(A, B)
    assert len(traces) == 1
    first, second = (jax.make_jaxpr(fn)(A, B).eqns[0].params["call_jaxpr"] for _ in range(2))
    (jit,) = [e for e in first.eqns if e.primitive.name in ("jit", "pjit")]
    assert jit.params["name"] == "step"
    assert jit.params["jaxpr"] is second.eqns[0].params["jaxpr"]


def test_names_and_lines_are_kept():
    def fn(a, b):
        with jax.named_scope("block"):
            return jax.jit(dot)(a, b)

    text = jax.jit(emulate(fn)).lower(A, B).compile().as_text()
    assert 'op_name="jit(fn)/block/jit(dot)/mmaemu_scaled_mm"' in text
    gemm = only(fn, A, B)
    assert (gemm.location.function, gemm.scope) == ("dot", "block/jit(dot)")


def test_report():
    def fn(a, b, s):
        y = lax.scan(lambda c, _: (c + dot(a, b) * s, None), jnp.zeros((M, N)), length=3)[0]
        return y + dot(a.astype(E5M2), b.astype(E5M2))

    report = mj.emulate(fn).report(*(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (A, B, S)))
    assert isinstance(report, mj.EmulationReport)
    assert [(g.times, g.scope, g.accumulate) for g in report.emulated] == [(3, "scan", "fast")]
    text = str(report)
    assert "1 FP8 GEMM emulated, 1 FP8 product left" in text
    assert "16 x 32 x 160, e4m3 x e4m3 -> float32, fast, S=1 none (assumed)" in text
    assert "LEFT: dot_general of float8_e5m2[16, 160] and float8_e5m2[160, 32]" in text
    assert json.loads(json.dumps(report.to_dict()))["emulated"][0]["M"] == M


def test_symbolic_dimensions():
    (m,) = jax.export.symbolic_shape("m")
    fn = mj.emulate(dot, profile="hopper-ws0")
    gemm = fn.report(jax.ShapeDtypeStruct((m, K), E4M3), B).emulated[0]
    assert m == gemm.M
    exported = jax.export.export(jax.jit(fn), disabled_checks=mj.export_checks())(
        jax.ShapeDtypeStruct((m, K), E4M3), jax.ShapeDtypeStruct(B.shape, E4M3)
    )
    assert_bitwise_equal(exported.call(A, B), plain(A, B))


# -------------------------------------------------------------------------------------- derivatives


def loss(x, w, sign=1):
    y = dot(x.astype(E4M3), w.astype(E4M3), dtype=BF16) * jnp.bfloat16(0.3)
    return sign * jnp.sum(y.astype(F32) ** 2)


X, W = (v.astype(F32) * 1.1 for v in (A, B))


@pytest.mark.parametrize("jit", [False, True])
def test_gradients_outside_and_inside_agree(jit):
    wrap = jax.jit if jit else lambda fn: fn
    outside = wrap(jax.value_and_grad(emulate(loss), (0, 1)))(X, W)
    inside = wrap(emulate(jax.value_and_grad(loss, (0, 1))))(X, W)
    jax.tree.map(assert_bitwise_equal, outside, inside)
    scale = ml_dtypes.bfloat16(0.3)
    y = plain(X.astype(E4M3), W.astype(E4M3), scale, dtype=BF16)
    assert_bitwise_equal(inside[0], wrap(lambda y: jnp.sum(y.astype(F32) ** 2))(y))


def test_backward_dots_of_a_plain_fp8_dot_are_not_fp8():
    gradient = jax.grad(loss)
    assert len(emulate(gradient).report(X, W).emulated) == 1
    (dot_eqn,) = [
        eqn
        for eqn in equations(jax.grad(emulate(loss)), X, W)
        if eqn.primitive.name == "dot_general"
    ]
    assert dot_eqn.invars[0].aval.dtype == BF16


def test_second_derivatives_and_integer_arguments():
    def second(transform):
        return jax.grad(lambda x, w: jnp.sum(jax.grad(transform(loss))(x, w, 2)))(X, W)

    def original(x, w):
        return jax.grad(lambda x, w: jnp.sum(jax.grad(loss)(x, w, 2)))(x, w)

    assert_bitwise_equal(second(emulate), emulate(original)(X, W))
    gradient = jax.grad(emulate(loss))
    assert_bitwise_equal(gradient(X, W, jnp.int32(2)), emulate(jax.grad(loss))(X, W, jnp.int32(2)))


def test_what_fn_closes_over_is_differentiated():
    outside = jax.grad(lambda w: emulate(lambda x: loss(x, w))(X))(W)
    assert_bitwise_equal(outside, emulate(jax.grad(loss, 1))(X, W))


def test_auxiliary_results_have_no_part_in_gradients():
    calls = []

    @jax.custom_vjp
    def watched(y):
        return y

    watched.defvjp(lambda y: (y, None), lambda _, g: (calls.append(1), (g,))[1])

    def with_aux(x, w):
        return loss(x, w), watched(x)

    outside = jax.grad(emulate(with_aux), has_aux=True)(X, W)[0]
    assert calls == []
    assert_bitwise_equal(outside, emulate(jax.grad(loss))(X, W))


def test_extended_dtypes_have_cotangents():
    """flax can keep its scales in a dtype whose cotangents are the new values."""
    from flax.linen import fp8_ops

    op = fp8_ops.fp8_scaled_dot_general
    names = [f"{x}_{y}" for y in ("scale", "amax_history") for x in ("lhs", "rhs", "grad")]

    def fn(state, x, w, flag):
        y = op(x, w, (((1,), (0,)), ((), ())), preferred_element_type=F32, **state)
        return jnp.sum(y * y), y, flag + 1

    def outer(transform):
        def loss(state, x, w):
            to_fm32 = functools.partial(lax.convert_element_type, new_dtype=fp8_ops.fm32)
            return transform(fn)(jax.tree.map(to_fm32, state), x, w, jnp.int32(3))[0]

        return loss

    state = {name: jnp.ones(1 if name.endswith("scale") else 4) for name in names}
    outside = jax.jit(jax.grad(outer(emulate), (0, 1, 2)))(state, X, W)
    inside = jax.jit(emulate(jax.grad(outer(lambda fn: fn), (0, 1, 2))))(state, X, W)
    jax.tree.map(assert_bitwise_equal, outside, inside)
    assert only(fn, state, X, W, jnp.int32(3)).accumulate == "fast"


def test_forward_mode_is_refused_outside_and_works_inside():
    with pytest.raises(TypeError, match="custom_vjp"):
        jax.jvp(emulate(loss), (X, W), (X, W))
    out, _ = emulate(lambda x, w: jax.jvp(loss, (x, w), (x, w)))(X, W)
    assert_bitwise_equal(out, emulate(loss)(X, W))
