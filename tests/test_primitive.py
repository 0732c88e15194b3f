"""The primitive under JAX's transformations: always the bits of the plain call, or a refusal."""

import concurrent.futures
import importlib.util
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gemms import FORMAT_PAIRS, finite_codes, gemm, ordinary_scales

from mmaemu_jax import _native, instruction
from mmaemu_jax.accumulate import AccumulationPlan
from mmaemu_jax.errors import UnsupportedFeatureError
from mmaemu_jax.formats import E4M3, E5M2
from mmaemu_jax.testing import assert_bitwise_equal

M, N, K = 6, 20, 72
SLOW = AccumulationPlan(chunk_k=128)

A, B = finite_codes(1, (M, K)), finite_codes(2, (N, K))
SCALE_A, SCALE_B = ordinary_scales(3, ()), ordinary_scales(4, ())


@pytest.fixture(scope="module")
def plain() -> np.ndarray:
    """What the portable kernel gives, called eagerly."""
    return np.asarray(gemm(A, B, SCALE_A, SCALE_B, backend="cpu:scalar"))


def test_eager_and_jit(plain):
    assert_bitwise_equal(gemm(A, B, SCALE_A, SCALE_B), plain)
    assert_bitwise_equal(jax.jit(gemm)(A, B, SCALE_A, SCALE_B), plain)
    assert_bitwise_equal(jax.jit(lambda: gemm(A, B, SCALE_A, SCALE_B))(), plain)
    with jax.disable_jit():
        assert_bitwise_equal(gemm(A, B, SCALE_A, SCALE_B), plain)


@pytest.mark.parametrize(("fmt_a", "fmt_b"), FORMAT_PAIRS)
@pytest.mark.parametrize("b_layout", ["nk", "kn"])
def test_format_pairs_and_layouts(fmt_a, fmt_b, b_layout):
    a, b = finite_codes(5, (M, K), fmt_a), finite_codes(6, (N, K), fmt_b)
    given = b if b_layout == "nk" else np.ascontiguousarray(b.T)
    desired = gemm(a, b, SCALE_A, SCALE_B, backend="cpu:scalar")
    for backend in ("auto", "reference"):
        y = jax.jit(partial(gemm, b_layout=b_layout, backend=backend))(a, given, SCALE_A, SCALE_B)
        assert_bitwise_equal(y, desired)


def test_scan(plain):
    scales = ordinary_scales(7, (3,))

    def step(total, scale):
        y = gemm(A, B, scale, SCALE_B)
        return total + 1, y

    count, ys = jax.jit(partial(jax.lax.scan, step, 0))(scales)
    assert count == 3
    assert_bitwise_equal(ys, jnp.stack([gemm(A, B, s, SCALE_B) for s in scales]))

    _, carried = jax.lax.scan(lambda c, _: (gemm(A, B, SCALE_A, SCALE_B), None), plain, length=2)
    assert carried is None


def test_scan_over_stacked_weights():
    weights = finite_codes(8, (3, N, K), E5M2)
    scan = jax.jit(lambda w: jax.lax.scan(lambda c, w: (c, gemm(A, w.T, b_layout="kn")), 0, w)[1])
    assert_bitwise_equal(scan(weights), jnp.stack([gemm(A, w) for w in weights]))


def test_cond_and_while_loop(plain):
    @jax.jit
    def choose(fast):
        call = partial(gemm, A, B, SCALE_A, SCALE_B)
        return jax.lax.cond(fast, call, partial(call, plan=SLOW))

    assert_bitwise_equal(choose(True), plain)
    assert_bitwise_equal(choose(False), gemm(A, B, SCALE_A, SCALE_B, plan=SLOW))

    def body(state):
        i, _ = state
        return i + 1, gemm(A, B, SCALE_A, SCALE_B)

    start = (0, jnp.zeros_like(plain))
    assert_bitwise_equal(jax.lax.while_loop(lambda s: s[0] < 3, body, start)[1], plain)


def test_remat(plain):
    assert_bitwise_equal(jax.jit(jax.checkpoint(gemm))(A, B, SCALE_A, SCALE_B), plain)


def test_shapes_without_computing():
    a, b = (jax.ShapeDtypeStruct(shape, E4M3.dtype) for shape in ((1, 3, M, K), (2, 1, N, K)))
    scale = jax.ShapeDtypeStruct((1, 1), np.float32)
    y = jax.eval_shape(partial(gemm, out_dtype=jnp.bfloat16), a, b, scale, scale)
    assert (y.shape, y.dtype, y.weak_type) == ((2, 3, M, N), jnp.bfloat16, False)


@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [
        ((M, K), (N, K + 1)),
        ((M, K), (N, K, 1)),
        ((3, M, K), (2, N, K)),
        ((K,), (N, K)),
    ],
)
def test_shapes_that_do_not_fit(a_shape, b_shape):
    a, b = finite_codes(1, a_shape), finite_codes(2, b_shape)
    with pytest.raises(TypeError, match=r"^mmaemu_scaled_mm: (operand shapes|leading dimensions) "):
        gemm(a, b, SCALE_A.reshape((1,) * (a.ndim - 2)), SCALE_B.reshape((1,) * (b.ndim - 2)))


def test_its_name_is_seen():
    assert "= mmaemu_scaled_mm[" in str(jax.make_jaxpr(gemm)(A, B, SCALE_A, SCALE_B))
    hlo = jax.jit(gemm).lower(A, B, SCALE_A, SCALE_B).compile().as_text()
    instruction_name = r"%mmaemu_scaled_mm[.\d]* = f32\[6,20\]\S* custom-call\("
    assert re.search(instruction_name + rf'.*custom_call_target="{_native.GEMM_TARGET}"', hlo)
    assert re.fullmatch(r"mmaemu_scaled_mm_v\d+", _native.GEMM_TARGET)


@pytest.mark.parametrize("donated", [0, 1])
def test_donation(donated):
    a, b = finite_codes(9, (N, N)), finite_codes(10, (N, N))
    program = jax.jit(partial(gemm, out_dtype=E4M3.dtype), donate_argnums=donated)
    operands = [jnp.asarray(a), jnp.asarray(b)]
    assert_bitwise_equal(program(*operands), gemm(a, b, out_dtype=E4M3.dtype))
    assert operands[donated].is_deleted()


def test_export_with_a_symbolic_dimension():
    (m,) = jax.export.symbolic_shape("m")
    operands = [jax.ShapeDtypeStruct(shape, E4M3.dtype) for shape in ((m, K), (N, K))]
    allowed = [jax.export.DisabledSafetyCheck.custom_call(_native.GEMM_TARGET)]
    program = jax.jit(lambda a, b: gemm(a, b.T, SCALE_A, SCALE_B, b_layout="kn"))
    exported = jax.export.export(program, disabled_checks=allowed)(*operands)
    if importlib.util.find_spec("flatbuffers"):  # what serialize needs, which jax does not require
        exported = jax.export.deserialize(exported.serialize())
    for rows in (1, M):
        assert_bitwise_equal(exported.call(A[:rows], B), gemm(A[:rows], B, SCALE_A, SCALE_B))


# --------------------------------------------------------------------------------- differentiation


def loss(scale):
    return gemm(A, B, scale, SCALE_B).sum()


@pytest.mark.parametrize(
    "differentiate",
    [
        lambda f: jax.grad(f)(SCALE_A),
        lambda f: jax.jit(jax.grad(f))(SCALE_A),
        lambda f: jax.jvp(f, (SCALE_A,), (SCALE_A,)),
        lambda f: jax.vjp(f, SCALE_A),
        lambda f: jax.linearize(f, SCALE_A),
        lambda f: jax.jacfwd(f)(SCALE_A),
        lambda f: jax.grad(jax.checkpoint(f))(SCALE_A),
        lambda f: jax.grad(lambda s: jax.vmap(f)(s).sum())(np.stack([SCALE_A, SCALE_B])),
        lambda f: jax.grad(lambda s: jax.lax.fori_loop(0, 2, lambda _, x: f(x), s))(SCALE_A),
    ],
    ids=["grad", "jit_grad", "jvp", "vjp", "linearize", "jacfwd", "checkpoint", "vmap", "loop"],
)
def test_differentiation_is_refused(differentiate):
    with pytest.raises(UnsupportedFeatureError, match=r"scaled_mm.*Ways out.*mmaemu_jax\.training"):
        differentiate(loss)


def test_gradients_of_other_arguments(plain):
    def f(x, scale):
        return (x * gemm(A, B, scale, SCALE_B)).sum()

    x = jnp.ones_like(plain)
    for grad in (jax.grad(f), jax.jit(jax.grad(f))):
        assert_bitwise_equal(grad(x, SCALE_A), plain)

    def stopped(scale):
        return scale * gemm(A, B, jax.lax.stop_gradient(scale), SCALE_B)[0, 0]

    assert_bitwise_equal(jax.grad(stopped)(SCALE_A), plain[0, 0])


# -------------------------------------------------------------------------------- sizes and threads


@pytest.mark.parametrize("shape", [(0, N, K), (M, 0, K), (M, N, 0), (0, 0, 0)])
@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("b_layout", ["nk", "kn"])
def test_empty(shape, backend, b_layout):
    m, n, k = shape
    a, b = finite_codes(1, (m, k)), finite_codes(2, (n, k) if b_layout == "nk" else (k, n))
    program = jax.jit(partial(gemm, b_layout=b_layout, backend=backend, out_dtype=np.float16))
    nan = np.float32(np.nan)  # R15: no epilogue
    assert_bitwise_equal(program(a, b, nan, -SCALE_B), np.zeros((m, n), np.float16))


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_empty_batch(backend):
    a, b = finite_codes(1, (0, M, K)), finite_codes(2, (1, N, K))
    assert_bitwise_equal(gemm(a, b, backend=backend), np.zeros((0, M, N), np.float32))
    nothing = jax.vmap(partial(gemm, backend=backend), in_axes=(0, None))(a, b[0])
    assert_bitwise_equal(nothing, np.zeros((0, M, N), np.float32))


def test_long_contraction():
    """K = 2^20: ones stall where one of them is below the grid, and chunks do not."""
    k = 1 << 20
    ones = np.ones((2, k), E4M3.dtype)
    model = instruction.HOPPER.model
    stalled = np.full((2, 2), 2.0 ** (model.frac + 1), np.float32)
    assert_bitwise_equal(gemm(ones, ones), stalled)
    assert_bitwise_equal(gemm(ones, ones, plan=SLOW), np.full((2, 2), k, np.float32))

    a, b = finite_codes(11, (2, k)), finite_codes(12, (3, k), E5M2)
    for plan in (AccumulationPlan(), SLOW, AccumulationPlan(128, 7, 64, True, True)):
        desired = gemm(a, b, plan=plan, backend="cpu:scalar")
        assert_bitwise_equal(gemm(a, b, plan=plan), desired)


def test_many_threads_at_once():
    shapes = [(M + i, N, K + 16 * i) for i in range(8)]
    calls = [
        (finite_codes(i, (m, k)), finite_codes(-i % 8, (n, k)))
        for i, (m, n, k) in enumerate(shapes)
    ]
    desired = [np.asarray(gemm(a, b, backend="cpu:scalar")) for a, b in calls]
    big = (finite_codes(20, (128, 512)), finite_codes(21, (256, 512)))  # uses the pool itself
    big_desired = np.asarray(gemm(*big))

    def worker(i):
        assert_bitwise_equal(jax.jit(gemm)(*big), big_desired)
        assert_bitwise_equal(gemm(*calls[i % 8]), desired[i % 8])

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(worker, range(48)))
