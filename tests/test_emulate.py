"""emulate: which dots are taken over and with which bits, and what is said of the others."""

import functools
import warnings

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
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
    T,
    codes,
    dot,
    emulate,
    equations,
    only,
    plain,
    reason,
)
from jax import lax
from jax.experimental import pallas as pl
from jax.lax import DotAlgorithmPreset, Precision

import mmaemu_jax as mj
from mmaemu_jax.primitive import scaled_mm_p
from mmaemu_jax.testing import assert_bitwise_equal

pytestmark = pytest.mark.filterwarnings("ignore::mmaemu_jax.errors.ExperimentalPresetWarning")


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


def test_scales_of_a_batch():
    """One scalar for all of it; the side without one has a scale of 1."""
    a, b = codes(4, (3, M, K)), codes(5, (3, K, N))
    dims = (((2,), (1,)), ((0,), (0,)))

    def fn(a, b, s):
        a, b = a.astype(F32) * s, b.astype(F32)
        return lax.dot_general(a, b, dims, preferred_element_type=F32)

    assert only(fn, a, b, S).scale_a == "multiplied"
    desired = np.stack([plain(x, y, S) for x, y in zip(a, b, strict=True)])
    assert_bitwise_equal(emulate(fn)(a, b, S), desired)
    (gemm,) = [e for e in equations(emulate(fn), a, b, S) if e.primitive is scaled_mm_p]
    assert [x.aval.shape for x in gemm.invars[2:]] == [(1,), (1,)]  # and no scale_result


@pytest.mark.parametrize(
    ("shape", "contract", "layout"),
    [((K, 4, 8), 0, "kn"), ((4, 8, K), 2, "nk"), ((4, K, 8), 1, "nk")],
)
def test_the_second_operand_is_moved_only_where_it_must_be(shape, contract, layout):
    b, dims = codes(5, shape), (((1,), (contract,)), ((), ()))
    fn = functools.partial(lax.dot_general, dimension_numbers=dims, preferred_element_type=F32)
    text = jax.jit(emulate(fn)).lower(A, b).as_text()
    assert f'b_layout = "{layout}"' in text
    assert_bitwise_equal(
        emulate(fn)(A, b).reshape(M, 32), plain(A, jnp.moveaxis(b, contract, 0).reshape(K, 32))
    )


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
