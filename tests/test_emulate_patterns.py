"""emulate: the edges of the patterns of XLA's FP8 rewriter; programs are only read."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from emulate_cases import BF16, E4M3, E5M2, F32, A, B, K, M, N, S, T, dot, emulate, only
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.lax import DotAlgorithm

ROWS = np.ones((M, K), np.float32)
ONE = np.ones((1, 1), np.float32)


def report_of(fn, *args, **options):
    return emulate(fn, **options).report(*args)


def left_because(fn, *args) -> str:
    report = report_of(fn, *args)
    assert report.emulated == ()
    (left,) = report.left
    return left.reason


def shapes(*sizes, dtype=E4M3):
    return [jax.ShapeDtypeStruct(size, dtype) for size in sizes]


def copied(x):
    return jnp.copy(checkpoint_name(x, "x"))


# ------------------------------------------------------------------------------------ operands


@pytest.mark.parametrize(
    ("scale", "how"),
    [
        (lambda a, s: a * s, "multiplied"),
        (lambda a, s: s * a, "multiplied"),
        (lambda a, s: 2.0 * a, "multiplied"),
        (lambda a, s: a / s, "divided"),
        (lambda a, s: a * jnp.broadcast_to(s.reshape(1, 1), a.shape), "multiplied"),
        (lambda a, s: a * jnp.broadcast_to(copied(s), a.shape), "multiplied"),
        (lambda a, s: a * jnp.broadcast_to(s, a.T.shape).T, "multiplied"),
        (lambda a, s: a * copied(jnp.broadcast_to(s, a.shape)), "multiplied"),
        (lambda a, s: copied(a * s).T.reshape(a.shape), "multiplied"),
        (lambda a, s: copied(a) * s, "multiplied"),
        (lambda a, s: a.T.reshape(a.shape) * s, "multiplied"),
        (lambda a, s: a.astype(BF16) * s.astype(BF16), "multiplied"),
        (lambda a, s: copied(a), ""),
    ],
)
def test_scales_of_an_operand(scale, how):
    gemm = only(lambda a, b, s: dot(scale(a.astype(F32), s), b.astype(F32)), A, B, S)
    assert (gemm.scale_a, gemm.scale_b) == (how, "")
    gemm = only(lambda a, b, s: dot(a.astype(F32), scale(b.astype(F32), s)), A, B, S)
    assert (gemm.scale_a, gemm.scale_b) == ("", how)


def test_the_scale_of_an_operand_of_one_element():
    """Which of two arrays of one element is the scalar: the second, if shapes leave it open."""
    for scaled in (lambda a: 2.0 * a, lambda a: a * 2.0, lambda a: a * ONE):
        fn = lambda a, b, f=scaled: dot(f(a.astype(F32)), b.astype(F32))  # noqa: E731
        assert only(fn, *shapes((1, 1), (1, N))).scale_a == "multiplied"


@pytest.mark.parametrize(
    ("operand", "words"),
    [
        (lambda a: jnp.pad(a, ((0, 0), (0, 8)), constant_values=1), "padded with something else"),
        (lambda a: lax.pad(a, a[0, 0], ((0, 0, 0), (0, 8, 0))), "padded with something else"),
        (lambda a: (a * S)[:, :16] * T, "slice stands between"),
        (lambda a: a[:, :16] * S * T, "scaled twice"),
        (lambda a: (a[:, :16] * S).astype(BF16).astype(F32), "converted again"),
        (lambda a: jnp.pad(a, ((0, 0), (0, 8))) * S, "pad stands between"),
        (lambda a: a * ROWS / ROWS, r"not a scalar (div of [16, 160] and [16, 160])"),
        (lambda a: ROWS * a, "not a scalar (mul of"),
        (lambda a: a / ROWS, "not a scalar (div of"),
    ],
)
def test_operands_that_are_no_fp8_for_xla(operand, words):
    def fn(a, b):
        x = operand(a.astype(F32))
        return dot(x, jnp.ones((x.shape[1], N), E4M3).astype(F32))

    assert words in left_because(fn, A, B)


@pytest.mark.parametrize(
    "operand",
    [
        lambda a: ROWS / a.astype(F32),
        lambda a: 2.0 / a.astype(F32),
        lambda a: ROWS * (a.astype(F32) > 0),
        lambda a: -a.astype(F32),
        lambda a: a.astype(jnp.int32).astype(F32),
        lambda a: lax.cumsum(a.astype(F32)),
    ],
)
def test_operands_that_do_not_come_from_fp8(operand):
    report = report_of(lambda a, b: dot(operand(a), b.astype(F32)), A, B)
    assert (report.emulated, report.left) == ((), ())


def test_a_long_chain_of_products():
    """Each value is looked at once, though there are 2^64 ways to it."""

    def fn(a, b):
        x = jnp.abs(a.astype(F32))
        for _ in range(64):
            x = x * x
        return dot(x, b.astype(F32))

    report = report_of(fn, A, B)
    assert (report.emulated, report.left) == ((), ())


def test_a_pad_with_a_converted_zero():
    def fn(a, b):
        zero = lax.convert_element_type(lax.convert_element_type(0, F32), BF16)
        return dot(lax.pad(a.astype(BF16), zero, ((0, 0, 0), (0, 16, 0))), b.astype(BF16))

    assert only(fn, A, jnp.ones((K + 16, N), E4M3)).K == K + 16


def test_operands_of_symbolic_shape():
    (m,) = jax.export.symbolic_shape("m")
    fn = lambda a, b: dot(a.astype(F32) * jnp.ones(a.shape), b.astype(F32))  # noqa: E731
    left = report_of(fn, jax.ShapeDtypeStruct((m, K), E4M3), B).emulated
    assert [gemm.scale_a for gemm in left] == ["multiplied"]


# ------------------------------------------------------------------------------------ accumulation


@pytest.mark.parametrize(
    "algorithm",
    [
        DotAlgorithm(E4M3, np.float16, np.float32),
        DotAlgorithm(np.float16, E4M3, np.float32),
        DotAlgorithm(E4M3, E4M3, np.float16),
        DotAlgorithm(E4M3, E4M3, np.float32, lhs_component_count=2),
        DotAlgorithm(E4M3, E4M3, np.float32, rhs_component_count=2),
        DotAlgorithm(E4M3, E4M3, np.float32, num_primitive_operations=2),
    ],
)
def test_algorithms_that_are_not_of_fp8(algorithm):
    assert "algorithm" in left_because(functools.partial(dot, precision=algorithm), A, B)


# -------------------------------------------------------------------------------------- epilogues


def clamped(y, low=-448.0, high=448.0):
    return lax.clamp(y.dtype.type(low), y, y.dtype.type(high))


def ends(y):
    return lax.min(lax.max(y, jnp.full_like(y, -448)), jnp.full_like(y, 448))


TO_FP8 = jax.ShapeDtypeStruct((M, N), E4M3)


def spread(y, s, use):
    return use(y, jnp.broadcast_to(s, y.shape))


def copied_bound(y):
    return jnp.broadcast_to(copied(lax.reshape(jnp.float32(-448), (1, 1))), y.shape)


@pytest.mark.parametrize(
    ("after", "folded"),
    [
        (lambda y, s: copied(y) * s, ("multiplied", "", "float32")),
        (lambda y, s: s * y, ("multiplied", "", "float32")),
        (lambda y, s: y / s, ("divided", "", "float32")),
        (lambda y, s: s / y, ("", "", "float32")),
        (lambda y, s: y * 3.0, ("multiplied", "", "float32")),
        (lambda y, s: y * jnp.sum(y), ("", "", "float32")),
        (lambda y, s: y * y[0, 0], ("", "", "float32")),
        (lambda y, s: (y.T * s, s + 1), ("multiplied", "", "float32")),
        (lambda y, s: (y * s, s), ("multiplied", "", "float32")),
        (
            lambda y, s: (y * s, jax.debug.callback(lambda s: None, s)),
            ("multiplied", "", "float32"),
        ),
        (
            lambda y, s: (y * s, lax.scan(lambda c, _: (c + s, c[0]), jnp.ones((M, N)), None, 2)),
            ("multiplied", "", "float32"),
        ),
        (lambda y, s: (y * s, jnp.ones((M, N)) + s), ("", "", "float32")),
        (lambda y, s: (y * s, jnp.ones((M, N)) - s, s), ("", "", "float32")),
        (lambda y, s: (y * s, jnp.ones((N, M)) * s), ("multiplied", "", "float32")),
        (lambda y, s: (s + 1, y * s, jnp.ones((M, N)) - s), ("", "", "float32")),
        (
            lambda y, s: (lambda z: (z, z + 1, z - y.dtype.type(2)))(y * s),
            ("multiplied", "", "float32"),
        ),
        (lambda y, s: spread(y, s, lambda y, z: y * z), ("multiplied", "", "float32")),
        (
            lambda y, s: spread(y, s, lambda y, z: (y * z, jnp.ones((M, N)) + z)),
            ("", "", "float32"),
        ),
        (lambda y, s: y * jnp.exp(s), ("multiplied", "", "float32")),
        (lambda y, s: y * jnp.exp(jnp.float32(0.5)), ("multiplied", "", "float32")),
        (lambda y, s: clamped(y).astype(E4M3), ("", "", "float8_e4m3fn")),
        (lambda y, s: ends(y).astype(E4M3), ("", "", "float8_e4m3fn")),
        (lambda y, s: copied(clamped(y.T)).astype(E4M3).T, ("", "", "float8_e4m3fn")),
        (lambda y, s: clamped(y * s).astype(E4M3), ("multiplied", "", "float8_e4m3fn")),
        (lambda y, s: clamped(y.T / s).astype(E4M3), ("divided", "", "float8_e4m3fn")),
        (lambda y, s: lax.max(lax.min(y, 448.0), -448.0).astype(E4M3), ("", "", "float8_e4m3fn")),
        (lambda y, s: clamped(y * s * (s + 1)).astype(E4M3), ("multiplied", "", "float32")),
        (
            lambda y, s: lax.min(lax.max(y, copied_bound(y)), 448.0).astype(E4M3),
            ("", "", "float8_e4m3fn"),
        ),
        (
            lambda y, s: lax.min(lax.max(y, jnp.full_like(y, s)), 448.0).astype(E4M3),
            ("", "", "float32"),
        ),
        (
            lambda y, s: clamped(lax.max(y, jnp.full_like(y, s))).astype(E4M3),
            ("", "", "float32"),
        ),
        (
            lambda y, s: ends(lax.max(y, jnp.full_like(y, s))).astype(E4M3),
            ("", "", "float32"),
        ),
        (lambda y, s: lax.max(lax.max(y, -448.0), -448.0).astype(E4M3), ("", "", "float32")),
        (lambda y, s: lax.min(y, 448.0).astype(E4M3), ("", "", "float32")),
        (lambda y, s: lax.min(lax.max(y, y), 448.0).astype(E4M3), ("", "", "float32")),
        (lambda y, s: lax.min(lax.max(y, y + 1), 448.0).astype(E4M3), ("", "", "float32")),
        (lambda y, s: lax.clamp(-448.0, jnp.full((M, N), s), y).astype(E4M3), ("", "", "float32")),
        (lambda y, s: clamped(y, 448.0, 448.0).astype(E4M3), ("", "", "float32")),
        (lambda y, s: lax.clamp(-448.0, y, s).astype(E4M3), ("", "", "float32")),
        (lambda y, s: clamped(y, -57344.0, 57344.0).astype(E4M3), ("", "", "float32")),
        (lambda y, s: clamped(y), ("", "", "float32")),
        (lambda y, s: lax.min(lax.max(y, -448.0) * 2, 448.0).astype(E4M3), ("", "", "float32")),
        (lambda y, s: jax.pure_callback(np.asarray, TO_FP8, clamped(y)), ("", "", "float32")),
        (lambda y, s: (clamped(y).astype(E4M3), y), ("", "", "float32")),
    ],
)
def test_what_is_folded(after, folded):
    gemm = only(lambda a, b, s: after(dot(a, b), s), A, B, S)
    assert (gemm.epilogue, gemm.scale_result, gemm.out_dtype) == folded


@pytest.mark.parametrize(
    ("after", "folded"),
    [
        (lambda y, s: clamped(y * s).astype(E4M3), ("", "multiplied", "float8_e4m3fn")),
        (lambda y, s: clamped(y.T / s).astype(E4M3), ("", "divided", "float8_e4m3fn")),
        (lambda y, s: clamped(y * 0.5).astype(E4M3), ("", "", "float32")),
        (lambda y, s: clamped(y).astype(E4M3), ("", "", "float8_e4m3fn")),
        (lambda y, s: y * s, ("", "", "float32")),
        (lambda y, s: clamped(y * s * s).astype(E4M3), ("", "", "float32")),
    ],
)
def test_what_is_folded_after_a_scaled_operand(after, folded):
    fn = lambda a, b, s, t: after(dot(a.astype(F32) * t, b.astype(F32)), s)  # noqa: E731
    gemm = only(fn, A, B, S, T)
    assert (gemm.epilogue, gemm.scale_result, gemm.out_dtype) == folded


def test_a_constant_beside_a_scaled_operand_is_not_folded():
    for scale in (lambda x: x * S, lambda x: x * jnp.exp(jnp.float32(0))):
        fns = (
            lambda a, b, f=scale: dot(f(a.astype(F32)), b.astype(F32)) * 3.0,
            lambda a, b, f=scale: dot(a.astype(F32), f(b.astype(F32))) * 3.0,
        )
        for fn in fns:
            gemm = only(fn, A, B)
            assert gemm.epilogue == ""
            assert "alpha" in gemm.note
    for factor, words in (
        (lambda t: jnp.exp(jnp.float32(0.5)), "alpha"),
        (lambda t: jnp.exp(t + 1), "has a scale already"),
        (lambda t: (t + 1) * 2.0, "has a scale already"),
    ):
        fn = lambda a, b, t, f=factor: dot(a.astype(F32) * t, b.astype(F32)) * f(t)  # noqa: E731
        assert words in only(fn, A, B, T).note
    free = only(lambda a, b, t: dot(a.astype(F32), b.astype(F32) * t) * t, A, B, T)
    assert (free.epilogue, free.note) == ("multiplied", "")


def test_nothing_is_folded_into_a_padded_gemm():
    fn = lambda a, b, s: clamped(dot(a, b) * s).astype(E4M3)  # noqa: E731
    gemm = only(fn, *shapes((M, K), (K, N - 1)), S)
    assert (gemm.epilogue, gemm.out_dtype) == ("", "float32")
    assert "slices first" in gemm.note
    one = only(lambda a, b: ONE * dot(a, b), *shapes((1, K), (K, 1)))
    assert (one.epilogue, one.note) == ("", "")


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (lambda y, s: (y * s, jnp.abs(y * s)), ""),
        (lambda y, s: y + y.T.reshape(M, N), ""),
        (lambda y, s: y.T + s, "bias or a matrix"),
        (lambda y, s: y.T * s + 1, "bias or a matrix"),
        (lambda y, s: jnp.abs(y), "magnitudes"),
        (lambda y, s: (y, jnp.max(jnp.abs(y))), "magnitudes"),
        (lambda y, s: (lambda z: (z, jnp.max(jnp.abs(z))))(y * s), "magnitudes"),
        (lambda y, s: y - s, ""),
        (lambda y, s: y, ""),
    ],
)
def test_notes_on_what_follows(after, words):
    note = only(lambda a, b, s: after(dot(a, b), s), A, B, S).note
    assert words in note
    assert bool(words) == bool(note)


def test_formats_of_the_output():
    """E5M2 only where an operand is of that format."""
    fn = lambda a, b: clamped(dot(a, b), -57344.0, 57344.0).astype(E5M2)  # noqa: E731
    assert only(fn, A, B).out_dtype == "float32"
    assert only(fn, A, B.astype(E5M2)).out_dtype == "float8_e5m2"
