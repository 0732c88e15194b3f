"""accumulate and dot: what they hand to the primitive and what they refuse (R22)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from api_calls import B200, BF16, E4M3, E5M2, FNUZ, f32, record_bind, zeros

import mmaemu_jax as mj
from mmaemu_jax.accumulate import ONE_CHAIN, AccumulationPlan
from mmaemu_jax.errors import SplitKUnknownError, UnsupportedFeatureError
from mmaemu_jax.testing import assert_bitwise_equal


@pytest.fixture
def bound(monkeypatch):
    return record_bind(monkeypatch)


# accumulate


def test_accumulate_hands_on_its_operands_and_plan(bound):
    y = mj.accumulate(zeros(3, 5), zeros(7, 5, dtype=E5M2), use_fast_accum=False, splitk=1)
    assert (y.shape, y.dtype) == ((3, 7), jnp.float32)
    (call,) = bound
    a, b, scale_a, scale_b, *rest = call["operands"]
    assert (a.shape, b.shape, rest) == ((3, 5), (7, 5), [None, None])
    assert_bitwise_equal([np.asarray(scale_a), np.asarray(scale_b)], [f32(1), f32(1)])
    assert call["plan"] == AccumulationPlan(chunk_k=128)
    assert (call["b_layout"], call["out_dtype"]) == ("nk", np.dtype(np.float32))


def test_accumulate_is_more_permissive_than_scaled_mm(bound):
    for a in (E4M3, E5M2):
        for b in (E4M3, E5M2):
            operands = zeros(3, 5, dtype=a), jnp.asarray(zeros(7, 5, dtype=b))
            mj.accumulate(*operands, use_fast_accum=True, profile="ada-ws0")
    assert len(bound) == 4
    for m, n, k in ((0, 3, 5), (3, 0, 5), (3, 4, 0)):
        y = mj.accumulate(zeros(m, k), zeros(n, k), use_fast_accum=True)
        assert_bitwise_equal(np.asarray(y), np.zeros((m, n), np.float32))
    assert len(bound) == 4


@pytest.mark.parametrize(
    ("a", "b", "changes", "error", "text"),
    [
        ([[1.0]], zeros(3, 5), {}, TypeError, "a must be a jax or numpy array, got list"),
        (np.zeros((3, 5)), zeros(3, 5), {}, TypeError, r"a must be float8_e4m3fn or .*\(3, 5\)"),
        (zeros(3, 5), zeros(3, 5, dtype=FNUZ), {}, TypeError, "b must be .*float8_e4m3fnuz"),
        (zeros(3, 5), zeros(3, 6), {}, ValueError, r"\(3, 5\) and float8_e4m3fn of shape \(3, 6\)"),
        (zeros(2, 3, 5), zeros(3, 5), {}, ValueError, r"matrices \[M, K\] and .*\(2, 3, 5\)"),
        (zeros(5), zeros(5), {}, ValueError, "matrices"),
        (zeros(3, 5), zeros(3, 5), {"use_fast_accum": 0}, TypeError, "use_fast_accum must be"),
        (zeros(3, 5), zeros(3, 5), {"splitk": "auto"}, SplitKUnknownError, "M=3 N=3 K=5"),
        (zeros(3, 5), zeros(3, 5), {"splitk": 2}, ValueError, "splitk=2 needs the scheme"),
        (zeros(3, 5), zeros(3, 5), {"profile": "x"}, ValueError, "unknown profile 'x'"),
        (zeros(3, 5), zeros(3, 5), {"backend": 1}, TypeError, "backend must be a str"),
        (
            zeros(3, 5), zeros(3, 5), {"out_dtype_for_split": "int8"},
            ValueError, "out_dtype_for_split must be one of .*got int8",
        ),
        (
            zeros(3, 5), zeros(3, 5), {"profile": B200, "use_fast_accum": False},
            UnsupportedFeatureError, "slow accumulation",
        ),
    ],
)  # fmt: skip
def test_what_accumulate_refuses(bound, a, b, changes, error, text):
    options = {"use_fast_accum": True, "splitk": 1, **changes}
    with pytest.raises(error, match=f"^accumulate: .*{text}"):
        mj.accumulate(a, b, **options)
    assert not bound


def test_accumulate_has_no_default_for_use_fast_accum():
    with pytest.raises(TypeError, match="use_fast_accum"):
        mj.accumulate(zeros(3, 5), zeros(3, 5))


# dot


def test_dot_hands_on_its_operands(bound):
    a, b, c = zeros(2, 3, 5), zeros(2, 3, 5, dtype=E5M2), f32(1, 2, 3)
    y = mj.dot(a, b, c, preset="hopper")
    assert (y.shape, y.dtype) == ((2, 3), jnp.float32)
    (call,) = bound
    shapes = [x if x is None else x.shape for x in call["operands"]]
    assert shapes == [(2, 3, 1, 5), (2, 3, 1, 5), (1, 1), (1, 1), None, (2, 3, 1, 1)]
    assert [float(x[0, 0]) for x in call["operands"][2:4]] == [1.0, 1.0]
    assert call["plan"] == ONE_CHAIN
    assert call["model"] == mj.get_preset("hopper").model
    assert call["b_layout"] == "nk"
    assert mj.dot(zeros(5), zeros(5)).shape == ()
    assert bound[-1]["operands"][5] is None
    assert mj.dot(zeros(4, 0, 5), zeros(4, 0, 5)).shape == (4, 0)
    assert len(bound) == 2


def test_dot_keeps_every_bit_of_c(bound):
    c = np.array([0x1, 0x80000000, 0x807FFFFF, 0x7FC00001, 0x7F800000], np.uint32).view(np.float32)
    mj.dot(zeros(5, 4), zeros(5, 4), c)
    assert_bitwise_equal(np.asarray(bound[0]["operands"][5]).reshape(5), c)


FLOATS = (np.float16, BF16, np.float32, np.float64)


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: np.dtype(t).name)
def test_dot_takes_the_values_of_every_code(bound, name, dtype):
    fp8 = {"e4m3": E4M3, "e5m2": E5M2}[name]
    codes = np.arange(256, dtype=np.uint8).view(fp8)
    with np.errstate(invalid="ignore"):
        values = codes.astype(np.float64).astype(dtype)
    nan = np.isnan(values.astype(np.float32))
    want = np.where(nan, 0x7F, codes.view(np.uint8)).astype(np.uint8)
    arrays = [values] if dtype is np.float64 else [values, jnp.asarray(values)]
    for array in arrays:
        mj.dot(array.reshape(2, 128), codes.reshape(2, 128), fmt=name)
        got = np.asarray(bound[-1]["operands"][0]).reshape(256)
        assert got.dtype == fp8
        assert_bitwise_equal(got.view(np.uint8), want)


def test_dot_formats(bound):
    a, b = np.ones(4, np.float32), np.ones(4, np.float64)
    for fmt in (("e4m3", "e5m2"), (E4M3, jnp.float8_e5m2), ["float8_e4m3fn", "e5m2"]):
        mj.dot(a, b, fmt=fmt)
        assert [x.dtype for x in bound[-1]["operands"][:2]] == [E4M3, E5M2]
    mj.dot(zeros(4), b, fmt="e4m3")
    mj.dot(zeros(4), zeros(4, dtype=E5M2), fmt=("e4m3", "e5m2"))


@pytest.mark.parametrize(
    ("args", "options", "error", "text"),
    [
        ((zeros(4), zeros(5)), {}, ValueError, r"same shape .*\(4,\) and .*\(5,\).*broadcast_to"),
        ((zeros(2, 4), zeros(4)), {}, ValueError, "same shape"),
        ((zeros(), zeros()), {}, ValueError, r"shape \(\)"),
        ((zeros(2, 4), zeros(2, 4), f32(0, 2, 1)), {}, ValueError, r"c must have shape .*\(2, 1\)"),
        ((zeros(2, 4), zeros(2, 4), f32(0)), {}, ValueError, "c must have shape"),
        ((zeros(4), zeros(4), np.zeros(())), {}, TypeError, "c must be float32, got float64"),
        ((zeros(4), zeros(4), 1), {}, TypeError, "c must be a float32 array"),
        (([1.0], zeros(1)), {"fmt": "e4m3"}, TypeError, "a must be a jax or numpy array, got list"),
        ((np.ones(4), zeros(4)), {}, TypeError, "a must be .*got float64 .*pass fmt"),
        ((np.ones(4, int), zeros(4)), {"fmt": "e4m3"}, TypeError, "a must be .*got int64"),
        ((zeros(4, dtype=FNUZ), zeros(4)), {"fmt": "e4m3"}, TypeError, "got float8_e4m3fnuz"),
        ((zeros(4), zeros(4)), {"fmt": "e5m2"}, ValueError, "fmt says e5m2 for a"),
        ((zeros(4), zeros(4)), {"fmt": "e3m4"}, ValueError, "unknown fmt 'e3m4'; known: e4m3"),
        ((zeros(4), zeros(4)), {"fmt": ("e4m3", "f32")}, ValueError, "unknown fmt"),
        ((zeros(4), zeros(4)), {"fmt": ("e4m3",) * 3}, ValueError, "a pair of them"),
        ((zeros(4), zeros(4)), {"fmt": np.float32}, ValueError, "unknown fmt"),
        ((zeros(4), zeros(4)), {"preset": "h100"}, ValueError, "[Uu]nknown preset 'h100'"),
        ((zeros(4), zeros(4)), {"preset": 1}, TypeError, "preset must be a name"),
        ((zeros(4), zeros(4)), {"backend": 1}, TypeError, "backend must be a str"),
        (
            (np.full((2, 2), 1.0625), zeros(2, 2)),
            {"fmt": "e4m3"},
            ValueError,
            r"1.0625 at index \(0, 0",
        ),
        ((np.array([0, 449.0]), zeros(2)), {"fmt": "e4m3"}, ValueError, r"449.0 at index \(1,\)"),
        ((np.array([0, np.inf]), zeros(2)), {"fmt": "e4m3"}, ValueError, "inf at index"),
        ((np.array([2.0**-17, 0]), zeros(2)), {"fmt": ("e5m2", "e4m3")}, ValueError, "at index"),
        ((f32(2.0**-140, 2), zeros(2)), {"fmt": "e4m3"}, ValueError, "at index"),
    ],
)
def test_what_dot_refuses(bound, args, options, error, text):
    with pytest.raises(error, match=f"^dot: .*{text}"):
        mj.dot(*args, **options)
    assert not bound


def test_dot_with_fmt_needs_concrete_values(bound):
    with pytest.raises(
        TypeError, match=r"^dot: with fmt the values of a must be concrete.*Ways out"
    ):
        jax.jit(lambda a: mj.dot(a, zeros(4), fmt="e4m3"))(f32(1, 4))
    assert jax.jit(lambda a: mj.dot(a, a, fmt="e4m3"))(zeros(2, 4)).shape == (2,)
