"""emulate: what is taken over and with which bits, what is left, and what is said about it."""

import functools
import json
import warnings

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.lax import DotAlgorithmPreset, Precision
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import mmaemu_jax as mj
from mmaemu_jax.testing import assert_bitwise_equal
from mmaemu_jax.transforms.jaxprs import walk

pytestmark = pytest.mark.filterwarnings("ignore::mmaemu_jax.errors.ExperimentalPresetWarning")

E4M3, E5M2, BF16, F32 = jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.bfloat16, jnp.float32
M, N, K = 16, 32, 160


def codes(seed, shape, dtype=E4M3):
    values = np.random.default_rng(seed).standard_normal(shape) * 2
    return jnp.asarray(values.astype(dtype))


A, B = codes(1, (M, K)), codes(2, (K, N))
S, T = np.float32(0.37), np.float32(1.7)


def dot(a, b, precision=None, dtype=F32):
    dims = (((a.ndim - 1,), (0,)), ((), ()))
    return lax.dot_general(a, b, dims, precision=precision, preferred_element_type=dtype)


DIMS, AS_F32 = (((1,), (0,)), ((), ())), {"preferred_element_type": F32}


def plain(a, b, scale_a=1.0, scale_b=1.0, *, fast=True, dtype=F32, **options):
    options = {"splitk": 1, "profile": "hopper", **options}
    scales = (np.float32(s) for s in (scale_a, scale_b))
    return mj.scaled_mm(a, b, *scales, out_dtype=dtype, use_fast_accum=fast, **options)


emulate = functools.partial(mj.emulate, splitk=1)


def only(fn, *args, **options):
    """The one GEMM of a program, nothing of which is left."""
    report = emulate(fn, **options).report(*args)
    assert report.left == ()
    (gemm,) = report.emulated
    return gemm


def reason(fn, *args, **options):
    """Why the one FP8 product of a program is left; the call warns, or raises if asked to."""
    report = emulate(fn, **options).report(*args)
    (left,) = report.left
    with pytest.warns(mj.errors.UnemulatedDotWarning, match="left to JAX"):
        emulate(fn, **options)(*args)
    with pytest.raises(mj.errors.UnsupportedFeatureError, match="cannot be emulated"):
        emulate(fn, on_unsupported="raise", **options)(*args)
    return left.reason


def equations(fn, *args):
    return [occurrence.eqn for occurrence in walk(jax.make_jaxpr(fn)(*args))]


# --------------------------------------------------------------------------------------- plain dots


@pytest.mark.parametrize("dtype", [F32, BF16, jnp.float16, E4M3])
def test_output_dtypes(dtype):
    assert_bitwise_equal(emulate(dot)(A, B, dtype=dtype), plain(A, B, dtype=dtype))


def test_without_a_preferred_type_the_result_is_fp8():
    b = B.astype(E5M2)
    fn = functools.partial(dot, dtype=None)
    assert only(fn, A, b).out_dtype == "float8_e5m2"
    assert_bitwise_equal(emulate(fn)(A, b), plain(A, b, dtype=E5M2))


@pytest.mark.parametrize(
    ("precision", "fast"),
    [
        (None, True),
        (Precision.DEFAULT, True),
        (Precision.HIGH, False),
        (Precision.HIGHEST, False),
        ((Precision.DEFAULT, Precision.HIGHEST), False),
        (DotAlgorithmPreset.ANY_F8_ANY_F8_F32, False),
        (DotAlgorithmPreset.ANY_F8_ANY_F8_F32_FAST_ACCUM, True),
        (DotAlgorithmPreset.ANY_F8_ANY_F8_ANY, False),
        (DotAlgorithmPreset.ANY_F8_ANY_F8_ANY_FAST_ACCUM, False),
        (lax.DotAlgorithm(E4M3, E4M3, np.float32, allow_imprecise_accumulation=True), True),
        (lax.DotAlgorithm(E4M3, E4M3, np.float32), False),
    ],
)
def test_accumulation_follows_the_precision(precision, fast):
    fn = functools.partial(dot, precision=precision)
    assert_bitwise_equal(emulate(fn)(A, B), plain(A, B, fast=fast))
    overridden = emulate(fn, use_fast_accum=not fast)(A, B)
    assert_bitwise_equal(overridden, plain(A, B, fast=not fast))


@pytest.mark.parametrize("preset", ["ANY_F8_ANY_F8_F32", "ANY_F8_ANY_F8_F32_FAST_ACCUM"])
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_presets_that_jax_refuses_on_the_cpu(preset, dtype):
    precision, fast = DotAlgorithmPreset[preset], preset.endswith("FAST_ACCUM")
    fn = functools.partial(dot, precision=precision, dtype=dtype)
    with pytest.raises(ValueError, match="not supported by dot_general on CPU"):
        jax.jit(fn)(A, B)
    assert only(fn, A, B).out_dtype == "float32"  # JAX converts the accumulator
    desired = plain(A, B, fast=fast, dtype=dtype)
    assert_bitwise_equal(jax.jit(emulate(fn))(A, B), desired)
    batched = jax.jit(jax.vmap(emulate(fn), (0, None)))(A.reshape(2, M // 2, K), B)
    assert_bitwise_equal(batched.reshape(M, N), desired)

    @jax.custom_vjp
    def op(x, w):
        return fn(x.astype(E4M3), w.astype(E4M3)).astype(F32)

    def backward(residuals, g):
        x, w = residuals
        gradients = fn(g.astype(E5M2), w.T.astype(E4M3)), fn(x.T.astype(E4M3), g.astype(E5M2))
        return tuple(d.astype(F32) for d in gradients)

    op.defvjp(lambda x, w: (op(x, w), (x, w)), backward)
    g = codes(3, (M, N), E5M2)
    loss = emulate(lambda x, w: jnp.sum(op(x, w) * g.astype(F32)))
    dx, dw = jax.jit(jax.grad(loss, (0, 1)))(A.astype(F32), B.astype(F32))
    assert_bitwise_equal(dx, plain(g, B.T, fast=fast, dtype=dtype).astype(F32))
    assert_bitwise_equal(dw, plain(A.T, g, fast=fast, dtype=dtype).astype(F32))


def test_several_contracting_free_and_batch_dimensions():
    a, b = codes(4, (2, 3, 16, 5, 4, 2)), codes(5, (2, 4, 2, 5, 7, 2, 3))
    dims = (((3, 4), (3, 1)), ((0, 5), (5, 2)))
    fn = functools.partial(lax.dot_general, dimension_numbers=dims, preferred_element_type=BF16)
    gemm = only(fn, a, b)
    assert (gemm.batch, gemm.M, gemm.N, gemm.K) == (4, 48, 42, 20)
    assert gemm.padded == (48, 48, 32)
    y = emulate(fn)(a, b)
    assert y.shape == (2, 2, 3, 16, 2, 7, 3)
    for i, j in np.ndindex(2, 2):
        left = a[i, ..., j].reshape(48, 20)
        right = jnp.transpose(b[:, :, j, :, :, i], (2, 1, 0, 3, 4)).reshape(20, 42)
        desired = plain(
            jnp.pad(left, ((0, 0), (0, 12))), jnp.pad(right, ((0, 12), (0, 6))), dtype=BF16
        )
        assert_bitwise_equal(y[i, j].reshape(48, 42), desired[:, :42])


def test_the_split_is_decided_at_the_padded_shape():
    options = {"profile": "hopper-xla", "splitk": "auto_or_unsplit"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mj.errors.MmaemuWarning)
        for m, n, k in ((33, 16, 8190), (64, 129, 16380)):
            args = jax.ShapeDtypeStruct((m, k), E4M3), jax.ShapeDtypeStruct((k, n), E4M3)
            gemm = only(dot, *args, **options)
            padded = [-(-d // 16) * 16 for d in (m, n, k)]
            assert list(gemm.padded) == padded
            decision = mj.resolve_splitk(
                *padded, a_dtype=E4M3, b_dtype=E4M3, out_dtype=F32, use_fast_accum=True, **options
            )
            assert (gemm.split.S, gemm.split.source) == (decision.S, decision.source)


def test_a_split_of_an_unaligned_k():
    a, b = codes(6, (3, 1000)), codes(7, (1000, 5))
    split = (3, "contiguous")
    y = mj.emulate(dot, "hopper", split)(a, b)
    padded = jnp.pad(a, ((0, 0), (0, 8))), jnp.pad(b, ((0, 8), (0, 11)))
    assert_bitwise_equal(y, plain(*padded, splitk=split)[:, :5])


def test_an_empty_dot_is_none():
    assert emulate(dot).report(A[:, :0], B[:0]).emulated == ()
    assert_bitwise_equal(emulate(dot)(A[:, :0], B[:0]), jnp.zeros((M, N)))


# -------------------------------------------------------------------- operands dequantised from FP8


def dequantised(a, b, s, t, wide=BF16):
    return dot(a.astype(wide) * s.astype(wide), b.astype(wide) / t.astype(wide))


@pytest.mark.parametrize("wide", [BF16, jnp.float16, F32])
def test_scales_become_operands(wide):
    fn = functools.partial(dequantised, wide=wide)
    gemm = only(fn, A, B, S, T)
    assert (gemm.scale_a, gemm.scale_b) == ("multiplied", "divided")
    scale_a, scale_b = S.astype(wide), np.divide(np.ones((), wide), T.astype(wide), dtype=wide)
    assert_bitwise_equal(emulate(fn)(A, B, S, T), plain(A, B, scale_a, scale_b))


def moved(a, b, s, i):
    """Operands that are moved after their dequantisation, as in XLA's pattern."""
    a = (a.astype(F32) * s).reshape(2, M // 2, K).transpose(1, 0, 2)[:, :1].reshape(M // 2, K)
    b = lax.dynamic_slice(jnp.pad(b.astype(F32), ((0, 0), (0, 16))), (0, i), (K, N))
    return dot(a, b)


def test_moves_after_the_dequantisation():
    y = jax.jit(emulate(moved))(A, B, S, 16)
    b = jnp.pad(B, ((0, 0), (0, 16)))[:, 16:]
    assert_bitwise_equal(y, plain(A[: M // 2], b, S))
    assert only(moved, A, B, S, 16).scale_a == "multiplied"


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (lambda a, b: dot(a.astype(F32) * ROWS, b.astype(F32)), "not a scalar"),
        (
            lambda a, b: dot(a.astype(F32), b.astype(F32) / ROWS[:, :1].T.repeat(K, 0)[:, :1]),
            "not a",
        ),
        (lambda a, b: dot((a.astype(F32) * S).astype(BF16), b.astype(BF16)), "converted again"),
        (lambda a, b: dot(a.astype(F32) * S * T, b.astype(F32)), "scaled twice"),
        (lambda a, b: dot(a.astype(F32), b.astype(F32)[:, :16] * S), "slice stands between"),
    ],
)
def test_dequantisations_that_xla_does_not_recognise(fn, words):
    assert words in reason(fn, A, B)


def test_patterns_across_jits():
    @jax.jit
    def layer(a, b):
        return dot(a, b, dtype=BF16)

    @jax.jit
    def inner(a, b, s):
        return layer(a.astype(BF16), b.astype(BF16)).T / s

    def fn(a, b, s, t):
        return inner(a, b, s.astype(BF16)), layer(a, b) * t.astype(BF16), layer(a, b)

    report = emulate(fn).report(A, B, S, T)
    assert [g.epilogue for g in report.emulated] == ["divided", "multiplied", ""]
    scopes = ["jit(inner)/jit(layer)", "jit(layer)", "jit(layer)"]
    assert [g.scope for g in report.emulated] == scopes
    assert report.left == ()
    first, second, third = jax.jit(emulate(fn))(A, B, S, T)
    bf16 = ml_dtypes.bfloat16
    scale = np.divide(np.ones((), bf16), S.astype(bf16), dtype=bf16)
    assert_bitwise_equal(first, plain(A, B, scale, dtype=BF16).T)
    assert_bitwise_equal(second, plain(A, B, T.astype(bf16), dtype=BF16))
    assert_bitwise_equal(third, plain(A, B, dtype=BF16))


ROWS = np.linspace(1, 2, M, dtype=np.float32)[:, None] * np.ones((1, K), np.float32)


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: dot(a.astype(F32) + 1, b.astype(F32)),
        lambda a, b: dot(jnp.exp(a.astype(F32)), b.astype(F32)),
        lambda a, b: dot(a.astype(F32), jnp.ones(b.shape)),
    ],
)
def test_other_dots_are_no_fp8_products(fn):
    report = emulate(fn).report(A, B)
    assert (report.emulated, report.left) == ((), ())
    assert_bitwise_equal(emulate(fn)(A, B), fn(A, B))


# ------------------------------------------------------------------------------------- the epilogue


def scaled(a, b, s, t, dtype=BF16):
    """What flax does: the product of two scales, in the output dtype."""
    return dot(a, b, dtype=dtype) * (s * t).astype(dtype)


def test_a_scaled_result_is_folded():
    assert only(scaled, A, B, S, T).epilogue == "multiplied"
    scale = (S * T).astype(ml_dtypes.bfloat16)
    inside = emulate(scaled)(A, B, S, T)
    assert_bitwise_equal(inside, plain(A, B, scale, dtype=BF16))
    outside = emulate(scaled, epilogue="jaxpr")(A, B, S, T)
    assert_bitwise_equal(outside, jax.jit(jnp.multiply)(plain(A, B, dtype=BF16), scale))
    assert np.any(np.asarray(inside) != np.asarray(outside))


def test_division_reshape_and_transpose_are_folded():
    def fn(a, b, s):
        return dot(a, b, dtype=BF16).reshape(2, M // 2, N).transpose(2, 0, 1) / s.astype(BF16)

    assert only(fn, A, B, S).epilogue == "divided"
    scale = np.divide(np.ones((), BF16), S.astype(BF16), dtype=ml_dtypes.bfloat16)
    y = jax.jit(emulate(fn))(A, B, S)
    assert_bitwise_equal(y, plain(A, B, scale, dtype=BF16).reshape(2, M // 2, N).transpose(2, 0, 1))


def test_the_first_scale_is_the_one_that_is_free():
    def fn(a, b, s, t):
        return dot(a.astype(BF16), b.astype(BF16) * s.astype(BF16)) * t

    assert only(fn, A, B, S, T).epilogue == "multiplied"
    assert_bitwise_equal(emulate(fn)(A, B, S, T), plain(A, B, T, S.astype(ml_dtypes.bfloat16)))


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (lambda a, b, s: dot(a[:, :32], b[:32, :8]) * s, "padded"),
        (lambda a, b, s: dot(a.astype(F32) * s, b.astype(F32)) * (s + 1), "has a scale already"),
        (lambda a, b, s: dot(a.astype(F32), b.astype(F32) * s) * 3.0, "alpha"),
        (lambda a, b, s: (dot(a, b) * s, jnp.ones((M, N)) * s), "other uses"),
        (lambda a, b, s: (lambda y: (y * s, y))(dot(a, b)), ""),
        (lambda a, b, s: dot(a, b) * jnp.arange(N) * s, ""),
        (lambda a, b, s: dot(a, b) + s, "bias or a matrix"),
    ],
)
def test_scalings_that_are_not_folded(fn, words):
    gemm = only(fn, A, B, S)
    assert gemm.epilogue == ""
    assert words in gemm.note
    assert bool(words) == bool(gemm.note)


def to_fp8(y, dtype, clip=jnp.clip):
    bound = float(jnp.finfo(dtype).max)
    return clip(y, -bound, bound).astype(dtype)


def lax_clamp(y, low, high):
    return lax.clamp(y.dtype.type(low), y, y.dtype.type(high))


@pytest.mark.parametrize("clip", [jnp.clip, lax_clamp])
@pytest.mark.parametrize(("b_dtype", "dtype"), [(E4M3, E4M3), (E5M2, E5M2)])
def test_a_conversion_to_fp8_is_folded(clip, b_dtype, dtype):
    def fn(a, b, s):
        return to_fp8(dot(a, b, dtype=BF16) * s.astype(BF16), dtype, clip).T

    b = B.astype(b_dtype)
    gemm = only(fn, A, b, S)
    assert (gemm.out_dtype, gemm.epilogue) == (jnp.dtype(dtype).name, "multiplied")
    scale = S.astype(ml_dtypes.bfloat16)
    assert_bitwise_equal(jax.jit(emulate(fn))(A, b, S), plain(A, b, scale, dtype=dtype).T)


@pytest.mark.filterwarnings("ignore::mmaemu_jax.errors.UnverifiedSplitWarning")
def test_a_scale_after_a_scaled_operand_is_that_of_the_fp8_result():
    def fn(a, b, s, t):
        return to_fp8(dot(a.astype(BF16) * s.astype(BF16), b.astype(BF16)) / t, E4M3)

    gemm = only(fn, A, B, S, T)
    assert (gemm.scale_a, gemm.epilogue, gemm.scale_result) == ("multiplied", "", "divided")
    scale, inverse = S.astype(ml_dtypes.bfloat16), np.float32(1) / T
    desired = plain(A, B, scale, dtype=E4M3, scale_result=inverse)
    assert_bitwise_equal(jax.jit(emulate(fn))(A, B, S, T), desired)


@pytest.mark.parametrize(
    "fn",
    [
        lambda y: jnp.clip(y, -440, 440).astype(E4M3),
        lambda y: jnp.clip(y, -448, None).astype(E4M3),
        lambda y: y.astype(E4M3),
        lambda y: jnp.clip(y, -448, 448).astype(BF16),
        lambda y: to_fp8(y, E5M2),  # no such GEMM of two E4M3 operands
    ],
)
def test_other_conversions_are_not_folded(fn):
    assert only(lambda a, b: fn(dot(a, b)), A, B).out_dtype == "float32"


def test_an_amax_beside_the_conversion_is_noted():
    def fn(a, b):
        y = dot(a, b)
        return to_fp8(y, E4M3), jnp.max(jnp.abs(y))

    assert "magnitudes" in only(fn, A, B).note


def test_a_bias_after_a_folded_scale_is_noted():
    gemm = only(lambda a, b, s: dot(a, b) * s + jnp.arange(N), A, B, S)
    assert gemm.epilogue == "multiplied"
    assert "not modelled" in gemm.note


# ------------------------------------------------------------------------ what cannot be taken over


def gemm_kernel(a, b, y):
    y[...] = dot(a[...], b[...])


def in_pallas(a, b):
    call = pl.pallas_call(gemm_kernel, jax.ShapeDtypeStruct((M, N), F32), interpret=True)
    return call(a, b)


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (lambda a, b: dot(a.astype(E5M2), b.astype(E5M2)), "float8_e5m2 times float8_e5m2"),
        (lambda a, b: dot(a, b, dtype=E5M2), "refuses e4m3 x e4m3 -> float8_e5m2"),
        (lambda a, b: dot(a, b, dtype=jnp.float8_e5m2fnuz), "out_dtype must be one of"),
        (lambda a, b: dot(a, b, DotAlgorithmPreset.F32_F32_F32), "algorithm"),
        (lambda a, b: dot(a.astype(jnp.float8_e4m3fnuz), b), "float8_e4m3fnuz"),
        (
            lambda a, b: lax.ragged_dot(a, b[None], jnp.array([M]), preferred_element_type=F32),
            "not modelled",
        ),
        (in_pallas, "does not see through pallas_call"),
    ],
)
def test_unsupported_products_are_reported(fn, words):
    assert words in reason(fn, A, B)
    assert_bitwise_equal(quietly(emulate(fn), A, B), fn(A, B))


def quietly(fn, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mj.errors.UnemulatedDotWarning)
        return fn(*args)


def test_a_product_in_float64_is_reported():
    with jax.enable_x64(True):
        assert "float64" in reason(lambda a, b: dot(a, b, dtype=np.float64), A, B)


def test_an_unknown_split_raises():
    fn = mj.emulate(dot, splitk="auto")
    with pytest.raises(mj.errors.SplitKUnknownError, match="unknown how cuBLASLt splits"):
        fn(A, B)
    assert "unknown how cuBLASLt splits" in fn.report(A, B).left[0].reason


def test_warnings_of_the_gemms():
    with pytest.warns() as seen:
        mj.emulate(lambda a, b: dot(a, b) + dot(a, b))(A, B)
    assert [w.category for w in seen] == [
        mj.errors.ExperimentalPresetWarning,
        mj.errors.UnverifiedSplitWarning,
    ]
    assert {w.filename for w in seen} == {__file__}


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (TypeError, {"fn": 3}),
        (TypeError, {"profile": 3}),
        (ValueError, {"profile": "hooper"}),
        (ValueError, {"splitk": "sometimes"}),
        (TypeError, {"use_fast_accum": 1}),
        (ValueError, {"epilogue": "cublas"}),
        (ValueError, {"on_unsupported": "ignore"}),
        (ValueError, {"backend": "abacus"}),
        (ValueError, {"contraction": "sum"}),
    ],
)
def test_bad_options(error, options):
    with pytest.raises(error, match="emulate"):
        mj.emulate(**{"fn": dot, **options})


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
    target = jax.export.DisabledSafetyCheck.custom_call("mmaemu_scaled_mm_v1")
    exported = jax.export.export(jax.jit(fn), disabled_checks=[target])(
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


# ---------------------------------------------------------------------------- K spread over devices


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
