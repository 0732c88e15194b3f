"""explain_jaxpr: every FP8 GEMM of a function, through every construct that can hold one."""

import functools
import inspect
import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import Primitive
from jax.sharding import Mesh, PartitionSpec

import mmaemu_jax as mj
from mmaemu_jax.transforms import explain_jaxpr
from mmaemu_jax.transforms.jaxprs import sub_jaxprs, walk

E4M3, E5M2 = jnp.float8_e4m3fn, jnp.float8_e5m2
M, N, K = 64, 32, 256
A, B = jax.ShapeDtypeStruct((M, K), E4M3), jax.ShapeDtypeStruct((K, N), E4M3)
ZERO = functools.partial(jnp.zeros, (M, N), jnp.float32)


def dot(a, b, precision=None):
    dims = (((a.ndim - 1,), (0,)), ((), ()))
    return lax.dot_general(a, b, dims, precision=precision, preferred_element_type=jnp.float32)


def emulated(a, b, scale=1.0, **options):
    options = {"out_dtype": jnp.float32, "splitk": 1, **options}
    return mj.scaled_mm(a, b, scale, 1.0, **options)


def only(fn, *args, **options):
    (site,) = explain_jaxpr(fn, *args, **options)
    return site


def runs(fn, *args):
    """(times, loops, conditional, scope) of each site."""
    return [(s.times, s.loops, s.conditional, s.scope) for s in explain_jaxpr(fn, *args)]


# ------------------------------------------------------------------------------- what is reported


def test_a_dot_general():
    site = only(dot, A, B, profile="hopper-ws0")
    assert (site.kind, site.M, site.N, site.K, site.batch) == ("dot_general", M, N, K, 1)
    assert (site.format_a, site.format_b, site.out_dtype) == ("e4m3", "e4m3", "float32")
    assert (site.accumulate, site.model, site.times) == ("fast", "hopper", 1)
    assert (site.split.S, site.split.source, site.reason) == (1, "workspace0", "")
    assert site.multiply_adds == M * N * K


def test_an_emulated_gemm():
    site = only(functools.partial(emulated, profile="ada", splitk=(4, "pairwise")), A, B)
    assert (site.kind, site.M, site.N, site.K, site.batch) == ("mmaemu", M, N, K, 1)
    assert (site.accumulate, site.model, site.plan.chunk_k) == ("slow", "ada", 128)
    assert (site.split.S, site.split.scheme, site.split.source) == (4, "pairwise", "explicit")


@pytest.mark.parametrize(
    ("profile", "splitk", "scheme"),
    [
        ("ada", (2, "serial"), "serial"),
        ("hopper", (2, "contiguous"), "contiguous"),
        ("hopper", 1, "none"),
    ],
)
def test_the_scheme_of_an_emulated_gemm(profile, splitk, scheme):
    fn = functools.partial(emulated, profile=profile, splitk=splitk, use_fast_accum=True)
    site = only(fn, A, B)
    assert (site.split.scheme, site.accumulate) == (scheme, "fast")


def test_accumulate_and_dot_are_gemms_too():
    def fn(a, b):
        return mj.accumulate(a, b.T, use_fast_accum=True, splitk=1), mj.dot(a, a, preset=CUSTOM)

    first, second = explain_jaxpr(fn, A, B)
    assert (first.M, first.N, first.K, first.batch, first.model) == (M, N, K, 1, "hopper")
    assert (second.M, second.N, second.K, second.batch, second.model) == (1, 1, K, M, "custom")


CUSTOM = mj.Preset("mine", nfma=8, frac=13, frac_out=13, min_exp=-132)


@pytest.mark.parametrize(
    ("precision", "mode"),
    [
        (None, "fast"),
        (lax.Precision.DEFAULT, "fast"),
        (lax.Precision.HIGH, "slow"),
        (lax.Precision.HIGHEST, "slow"),
        ((lax.Precision.DEFAULT, lax.Precision.HIGHEST), "slow"),
        (lax.DotAlgorithmPreset.DEFAULT, "fast"),
        (lax.DotAlgorithmPreset.ANY_F8_ANY_F8_F32, "slow"),
        (lax.DotAlgorithmPreset.ANY_F8_ANY_F8_F32_FAST_ACCUM, "fast"),
        (lax.DotAlgorithm(E4M3, E4M3, np.float32, allow_imprecise_accumulation=True), "fast"),
        (lax.DotAlgorithm(E4M3, E4M3, np.float32), "slow"),
        (lax.DotAlgorithmPreset.BF16_BF16_F32, "unknown"),
        (lax.DotAlgorithm(np.float16, np.float16, np.float32), "unknown"),
    ],
)
def test_accumulate_mode_of_a_precision(precision, mode):
    site = only(functools.partial(dot, precision=precision), A, B, profile="hopper-ws0")
    assert site.accumulate == mode
    assert (site.split is None) == (mode == "unknown")


def test_the_default_precision_of_the_context_counts():
    with jax.default_matmul_precision("highest"):
        assert only(dot, A, B).accumulate == "slow"


def test_several_contracting_and_batch_dimensions():
    def fn(a, b):
        dims = (((1, 3), (4, 2)), ((0, 4), (1, 0)))
        return lax.dot_general(a, b, dims, preferred_element_type=jnp.bfloat16)

    a = jax.ShapeDtypeStruct((3, 16, 5, 8, 2), E4M3)
    b = jax.ShapeDtypeStruct((2, 3, 8, 48, 16), E5M2)
    site = only(fn, a, b, profile="ada-ws0")
    assert (site.batch, site.M, site.N, site.K) == (6, 5, 48, 128)
    assert (site.format_a, site.format_b, site.out_dtype) == ("e4m3", "e5m2", "bfloat16")
    assert site.split.source == "workspace0"


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ((16, 256, E4M3), (256, 5, E4M3), "N must be a multiple of 16"),
        ((16, 256, E5M2), (256, 16, E5M2), "float8_e5m2 times float8_e5m2"),
        ((16, 256, jnp.float8_e4m3fnuz), (256, 16, E4M3), "float8_e4m3fnuz"),
        ((16, 256, E4M3), (256, 16, E4M3), "unknown how cuBLASLt splits K"),
        ((16, 0, E4M3), (0, 16, E4M3), "empty"),
    ],
)
def test_why_a_split_is_unknown(a, b, words):
    a, b = (jax.ShapeDtypeStruct(x[:2], x[2]) for x in (a, b))
    site = only(dot, a, b, profile="hopper")
    assert (site.split, site.plan) == (None, None)
    assert words in site.reason


def test_the_assumed_split_is_marked():
    report = explain_jaxpr(dot, A, B, profile="hopper", splitk="auto_or_unsplit")
    assert report.sites[0].split.source == "assumed"
    assert "S=1 (assumed, unverified)" in str(report)


def test_symbolic_dimensions():
    (m,) = jax.export.symbolic_shape("m")
    report = explain_jaxpr(dot, jax.ShapeDtypeStruct((m, K), E4M3), B)
    assert m == report.sites[0].M
    assert json.loads(json.dumps(report.to_dict()))["sites"][0]["M"] == "m"
    assert f"{N * K}*m multiply-adds" in str(report)


def test_other_products_are_left_out():
    def fn(a, b, x):
        return a.astype(jnp.float32) @ b.astype(jnp.float32), dot(x, x), dot(a, x[:K])

    report = explain_jaxpr(fn, A, B, jnp.zeros((K, K), jnp.bfloat16))
    assert len(report) == 0
    assert str(report) == "fn: no FP8 GEMM."
    assert report.to_dict()["sites"] == []


# -------------------------------------------------------------------------- where, and how often


def test_source_and_scope():
    def fn(a, b):
        with jax.named_scope("block"):
            y = emulated(a, b)
        return y + jax.jit(dot)(a, b)

    first, second = explain_jaxpr(fn, A, B)
    assert first.location.file == second.location.file == __file__
    assert first.location.function == "emulated"
    assert second.location.function == "dot"
    lines, start = inspect.getsourcelines(dot)
    assert start <= second.location.line < start + len(lines)
    assert (first.scope, second.scope) == ("block", "jit(dot)")


def test_a_jitted_function_of_the_package_is_located_at_its_callers():
    gemm = jax.jit(mj.scaled_mm, static_argnames=("out_dtype", "splitk"))
    lines = []

    def fn(a, b):
        one = jnp.float32(1)
        lines.append(inspect.currentframe().f_lineno + 1)
        y = gemm(a, b, one, one, out_dtype=jnp.float32, splitk=1)
        lines.append(inspect.currentframe().f_lineno + 1)
        return y + gemm(a, b, one, one, out_dtype=jnp.float32, splitk=1)

    assert [site.location.line for site in explain_jaxpr(fn, A, B)] == lines


def test_jitted_with_static_arguments():
    jitted = jax.jit(dot, static_argnames="precision")
    assert only(jitted, A, B, precision="highest").accumulate == "slow"
    assert only(jitted, A, B).accumulate == "fast"


def test_scan():
    def inner(y, _):
        return lax.scan(lambda y, _: (y + dot(a, b), None), y, length=3)[0], None

    a, b = jnp.zeros(A.shape, E4M3), jnp.zeros(B.shape, E4M3)
    assert runs(lambda y: lax.scan(inner, y, length=5)[0], ZERO()) == [(15, (), False, "scan/scan")]


def test_while():
    def fn(a, b, n):
        body = lambda y: lax.fori_loop(0, 4, lambda _, y: y + dot(a, b), y)  # noqa: E731
        return lax.while_loop(lambda y: jnp.sum(y + dot(a, b)) < n, body, ZERO())

    report = explain_jaxpr(fn, A, B, 3.0)
    assert {(s.times, s.loops, s.scope) for s in report} == {
        (1, ("while",), "while(cond_jaxpr)"),
        (4, ("while",), "while/scan"),
    }
    assert (report.multiply_adds, report.loop_multiply_adds) == (0, 5 * M * N * K)
    assert "4 x loop" in str(report)


def test_cond():
    def fn(a, b, p):
        return lax.cond(p, lambda: dot(a, b), lambda: dot(a, b, "highest")) + dot(a, b)

    report = explain_jaxpr(fn, A, B, True)
    assert [(s.conditional, s.accumulate, s.scope) for s in report] == [
        (True, "slow", "cond[0]"),
        (True, "fast", "cond[1]"),
        (False, "fast", ""),
    ]
    assert report.multiply_adds == M * N * K
    assert report.conditional_multiply_adds == 2 * M * N * K
    assert "at most 1,048,576 more in branches" in str(report)


def test_vmap_folds_into_the_batch():
    stacked = jax.ShapeDtypeStruct((3, M, K), E4M3)
    site = only(jax.vmap(dot, (0, None)), stacked, B)
    assert site.batch * site.M == 3 * M
    site = only(
        jax.vmap(jax.vmap(emulated, (None, None, 0)), (0, None, None)), stacked, B, jnp.ones(7)
    )
    assert (site.batch, site.M, site.N, site.K) == (21, M, N, K)


def test_remat_and_custom_jvp():
    product = jax.custom_jvp(dot)
    product.defjvp(lambda primals, tangents: (dot(*primals), dot(*primals)))
    once = (1, (), False)
    assert [r[:3] for r in runs(jax.checkpoint(dot), A, B)] == [once]
    assert [r[:3] for r in runs(product, A, B)] == [once]


def test_shard_map_is_counted_per_device():
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("x", "y"))
    rows, whole = PartitionSpec("x"), PartitionSpec()
    for axes, devices in (({"x"}, 2), ({"x", "y"}, 4)):
        sharded = jax.shard_map(
            dot, mesh=mesh, in_specs=(rows, whole), out_specs=rows, axis_names=axes
        )
        site = only(jax.jit(sharded), A, B)
        assert (site.M, site.times) == (M // 2, devices)


def test_a_primitive_of_unknown_meaning_is_entered():
    call = Primitive("call_somehow")
    call.def_abstract_eval(lambda *avals, jaxpr: jaxpr.out_avals[0])
    jaxpr = jax.make_jaxpr(dot)(A, B)
    report = explain_jaxpr(lambda a, b: call.bind(a, b, jaxpr=jaxpr), A, B)
    assert [(s.times, s.loops) for s in report] == [(1, ("call_somehow",))]
    assert report.multiply_adds == 0


@jax.custom_vjp
def dense(x, w):
    return dot(x.astype(E4M3), w.astype(E4M3))


def dense_backward(residuals, gradient):
    x, w, g = *(r.astype(E4M3) for r in residuals), gradient.astype(E5M2)
    dx, dw = dot(g, w.T, "highest"), dot(x.T, g, "highest")
    return dx.astype(jnp.bfloat16), dw.astype(jnp.bfloat16)


dense.defvjp(lambda x, w: (dense(x, w), (x, w)), dense_backward)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, jax.checkpoint])
def test_gradient_of_a_dense_layer(wrap):
    x, w = jax.ShapeDtypeStruct((M, K), jnp.bfloat16), jax.ShapeDtypeStruct((K, N), jnp.bfloat16)
    gradient = jax.grad(lambda x, w: wrap(dense)(x, w).sum(), argnums=(0, 1))
    sites = explain_jaxpr(gradient, x, w).sites
    assert {(s.M, s.N, s.K, s.format_a, s.format_b, s.accumulate) for s in sites} == {
        (M, N, K, "e4m3", "e4m3", "fast"),
        (M, K, N, "e5m2", "e4m3", "slow"),
        (K, N, M, "e4m3", "e5m2", "slow"),
    }
    assert len(sites) == 3
    assert {site.location.file for site in sites} == {__file__}


# ----------------------------------------------------------------------------- report and refusals


def test_report_as_table_and_as_json():
    report = explain_jaxpr(lambda a, b: (dot(a, b), emulated(a, b)), A, B, profile="hopper")
    head, columns, *rows, totals, reason, ways_out = str(report).splitlines()
    assert "profile 'hopper', splitk='auto'" in head
    assert len(rows) == len(report) == 2
    for name in ("scope", "kind", "formats", "times"):
        assert all(row[columns.index(name) - 1] == " " for row in rows)
    assert totals == f"2 FP8 GEMMs, {2 * M * N * K:,} multiply-adds per call."
    assert reason.startswith("[1] scaled_mm: unknown how")
    assert "unknown [1]" in rows[0]
    assert ways_out.startswith("Ways out: ")
    data = json.loads(json.dumps(report.to_dict()))
    assert [site["kind"] for site in data["sites"]] == ["dot_general", "mmaemu"]
    assert data["sites"][1]["split"]["source"] == "explicit"
    assert data["multiply_adds"] == report.multiply_adds


def test_arguments_may_be_tracers_and_pytrees():
    seen = []

    @jax.jit
    def outer(a, b):
        seen.extend(explain_jaxpr(lambda p: dot(p["a"], p["b"]), {"a": a, "b": b}))
        return a

    outer.trace(A, B)
    assert [(s.M, s.N, s.K) for s in seen] == [(M, N, K)]


def test_warnings_wait_for_the_call():
    fn = jax.jit(lambda a, b: emulated(a, b, profile="hopper", splitk="auto_or_unsplit"))
    a, b = jnp.zeros(A.shape, E4M3), jnp.zeros(B.shape, E4M3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(explain_jaxpr(fn, a, b)) == 1
    with pytest.warns(mj.errors.UnverifiedSplitWarning):
        fn(a, b)


def test_refusals_name_the_function():
    with pytest.raises(TypeError, match="explain_jaxpr: fn must be callable, got 3 of type int"):
        explain_jaxpr(3)
    with pytest.raises(TypeError, match="explain_jaxpr: profile"):
        explain_jaxpr(dot, A, B, profile=3)
    with pytest.raises(ValueError, match="explain_jaxpr: unknown profile 'h100'"):
        explain_jaxpr(dot, A, B, profile="h100")
    with pytest.raises(ValueError, match="explain_jaxpr: unknown splitk 'maybe'"):
        explain_jaxpr(dot, A, B, splitk="maybe")


def test_errors_of_the_function_pass_through():
    with pytest.raises(mj.errors.SplitKUnknownError):
        explain_jaxpr(functools.partial(emulated, splitk="auto", profile="hopper"), A, B)


def test_walk_yields_every_equation_once():
    jaxpr = jax.make_jaxpr(lambda a, b: lax.cond(True, dot, lambda a, b: -dot(a, b), a, b))(A, B)
    (cond,) = (o for o in walk(jaxpr) if o.eqn.primitive.name == "cond")
    assert [(s.param, s.index, s.repeats) for s in sub_jaxprs(cond.eqn)] == [
        ("branches", 0, 1),
        ("branches", 1, 1),
    ]
    inside = [o.eqn.primitive.name for o in walk(jaxpr) if o.path]
    assert sorted(inside) == ["dot_general", "dot_general", "neg"]
