"""The handlers check again: whatever reaches them wrong is INVALID_ARGUMENT, never a crash."""

import itertools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from gemms import finite_codes, gemm

from mmaemu_jax import _native
from mmaemu_jax.formats import E4M3
from mmaemu_jax.testing import assert_bitwise_equal

M, N, K = 3, 4, 32
A, B, ONE = finite_codes(1, (M, K)), finite_codes(2, (N, K)), np.float32(1)
C = np.ones((M, N), np.float32)

MODEL = {
    "nfma": np.int32(32),
    "frac": np.int32(13),
    "frac_out": np.int32(13),
    "min_exp": np.int32(-132),
    "late_c": False,
}
PLAN = {
    "chunk_k": np.int64(0),
    "splits": np.int64(1),
    "tile_k": np.int64(0),
    "interleaved": False,
    "pairwise": False,
}
ATTRIBUTES = {
    "model": MODEL,
    "plan": PLAN,
    "b_layout": "nk",
    "kernel": "auto",
    "has_scale_result": False,
    "has_c": False,
}


def call(*operands, shape=(M, N), dtype=np.float32, **changes):
    """The GEMM target itself; results of the runtime's checks are awaited."""
    target = jax.ffi.ffi_call(_native.GEMM_TARGET, jax.ShapeDtypeStruct(shape, dtype))
    return target(*operands, **{**ATTRIBUTES, **changes}).block_until_ready()


def refused(text: str):
    return pytest.raises(jax.errors.JaxRuntimeError, match=rf"INVALID_ARGUMENT: mmaemu_jax: {text}")


def model(**changes):
    return {"model": {**MODEL, **{name: np.int32(value) for name, value in changes.items()}}}


def plan(**changes):
    return {"plan": {**PLAN, **{name: np.int64(value) for name, value in changes.items()}}}


def test_a_right_call():
    assert_bitwise_equal(call(A, B, ONE, ONE), gemm(A, B))
    desired = gemm(A, B, ONE, ONE, ONE, C, out_dtype=E4M3.dtype)
    optional = {"has_scale_result": True, "has_c": True, "dtype": E4M3.dtype}
    assert_bitwise_equal(call(A, B, ONE, ONE, ONE, C, **optional), desired)


@pytest.mark.parametrize(
    ("operands", "text"),
    [
        ((A[None], B, ONE, ONE), r"a has shape \(1, 3, 32\) and the output \(3, 4\)"),
        ((A[0], B, ONE, ONE), r"a has shape \(32\) and the output"),
        ((A[:2], B, ONE, ONE), r"a has shape \(2, 32\)"),
        ((A, B[:2], ONE, ONE), r"b has shape \(2, 32\)"),
        ((A, B[:, :16], ONE, ONE), r"b has shape \(4, 16\)"),
        ((A, B[None], ONE, ONE), r"b has shape \(1, 4, 32\)"),
        ((A, B, ONE[None], ONE), r"scale_a has shape \(1\)"),
        ((A, B, ONE, C), r"scale_b has shape \(3, 4\)"),
        ((C, B, ONE, ONE), r"a and b must be float8_e4m3fn or float8_e5m2"),
        ((A, B.view(ml_dtypes.float8_e4m3fnuz), ONE, ONE), r"a and b must be float8"),
        ((A, B.view(np.uint8), ONE, ONE), r"a and b must be float8"),
        ((A, B, np.float16(1), ONE), r"scale_a has a wrong dtype"),
        ((A, B, ONE, np.int32(1)), r"scale_b has a wrong dtype"),
        ((A, B, ONE, ONE, ONE), r"wrong number of operands"),
    ],
)
def test_operands(operands, text):
    with refused(text):
        call(*operands)


@pytest.mark.parametrize("count", range(4))
def test_too_few_operands(count):
    with pytest.raises(jax.errors.JaxRuntimeError, match="INVALID_ARGUMENT"):
        call(*(A, B, ONE, ONE)[:count])


@pytest.mark.parametrize(
    ("operands", "changes", "text"),
    [
        ((), {"has_c": True}, ""),
        ((ONE,), {"has_c": True}, r"c has shape \(\)"),
        ((C[:2],), {"has_c": True}, r"c has shape \(2, 4\)"),
        ((C.astype(np.float16),), {"has_c": True}, "c has a wrong dtype"),
        ((C,), {"has_scale_result": True}, r"scale_result has shape \(3, 4\)"),
        ((C, ONE), {"has_c": True, "has_scale_result": True}, "scale_result has shape"),
        ((C,), {"has_c": True, **plan(chunk_k=128)}, "an initial accumulator needs the plan"),
        ((C,), {"has_c": True, **plan(splits=2, tile_k=64)}, "an initial accumulator needs"),
    ],
)
def test_optional_operands(operands, changes, text):
    with pytest.raises(jax.errors.JaxRuntimeError, match=f"INVALID_ARGUMENT.*{text}"):
        call(A, B, ONE, ONE, *operands, **changes)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"shape": (M, N, 1)}, "a has shape"),
        ({"shape": (N,)}, "a has shape"),
        ({"shape": (M, N + 1)}, "b has shape"),
        ({"dtype": np.int32}, "the output dtype is not one of the five"),
        ({"dtype": ml_dtypes.float8_e5m2fnuz}, "the output dtype"),
        ({"b_layout": "kn"}, "b has shape"),
        ({"b_layout": "tn"}, "b_layout must be nk or kn, got tn"),
        ({"kernel": "avx1024"}, "kernel avx1024 is unknown or cannot run on this processor"),
        ({"kernel": ""}, "kernel  is unknown"),
        (model(nfma=0), "the instruction model"),
        (model(nfma=1025), "the instruction model"),
        (model(frac=0), "the instruction model"),
        (model(frac=41), "the instruction model"),
        (model(frac_out=0), "the instruction model"),
        (model(frac_out=24), "the instruction model"),
        (model(min_exp=-1001), "the instruction model"),
        (model(min_exp=128), "the instruction model"),
        (plan(chunk_k=-1), "the accumulation plan"),
        (plan(splits=0), "the accumulation plan"),
        (plan(splits=-3), "the accumulation plan"),
        (plan(splits=2), "the accumulation plan"),
        (plan(splits=2**12 + 1, tile_k=64), "the accumulation plan"),
        (plan(splits=2, tile_k=2**30 + 1), "the accumulation plan"),
        (plan(chunk_k=2**40 + 1), "the accumulation plan"),
        (plan(splits=2, tile_k=-64), "the accumulation plan"),
    ],
)
def test_attributes_and_results(changes, text):
    with refused(text):
        call(A, B, ONE, ONE, **changes)


@pytest.mark.parametrize("chunk_k", [K, 2**31 - 1, 2**40])
def test_chunks_beyond_k(chunk_k):
    assert_bitwise_equal(call(A, B, ONE, ONE, **plan(chunk_k=chunk_k)), gemm(A, B))


def attributes_without(name: str):
    return {key: value for key, value in ATTRIBUTES.items() if key != name}


@pytest.mark.parametrize(
    "attributes",
    [
        *map(attributes_without, ATTRIBUTES),
        {**ATTRIBUTES, "more": np.int32(0)},
        {**ATTRIBUTES, "model": {**MODEL, "nfma": np.int64(32)}},
        {**ATTRIBUTES, "model": {k: v for k, v in MODEL.items() if k != "frac"}},
        {**ATTRIBUTES, "plan": {**PLAN, "more": np.int64(0)}},
        {**ATTRIBUTES, "has_c": np.int32(0)},
        {**ATTRIBUTES, "kernel": np.int32(0)},
    ],
)
def test_wrong_sets_of_attributes(attributes):
    target = jax.ffi.ffi_call(_native.GEMM_TARGET, jax.ShapeDtypeStruct((M, N), np.float32))
    # Jitted, since an eager call would find the program of equal attributes: False == np.int32(0).
    with pytest.raises(jax.errors.JaxRuntimeError, match="INVALID_ARGUMENT"):
        jax.jit(lambda: target(A, B, ONE, ONE, **attributes))().block_until_ready()


def test_batches():
    a, b = finite_codes(3, (2, 1, M, K)), finite_codes(4, (1, 3, N, K))
    scale = np.ones((1, 1), np.float32)
    assert_bitwise_equal(call(a, b, scale, scale, shape=(2, 3, M, N)), gemm(a, b))
    for shape in ((2, 2, M, N), (1, 3, M, N), (3, 2, M, N)):
        with refused("[ab] has shape"):
            call(a, b, scale, scale, shape=shape)
    with refused("scale_a has shape"):
        call(a, b, np.ones((3, 1), np.float32), scale, shape=(2, 3, M, N))


def test_wrong_numbers_of_results():
    for results in ([], [jax.ShapeDtypeStruct((M, N), np.float32)] * 2):
        target = jax.ffi.ffi_call(_native.GEMM_TARGET, results, has_side_effect=True)
        with pytest.raises(jax.errors.JaxRuntimeError, match="INVALID_ARGUMENT"):
            jax.block_until_ready(jax.jit(lambda t=target: t(A, B, ONE, ONE, **ATTRIBUTES))())


def test_a_refusal_leaves_everything_usable():
    for kernel, dtype in itertools.product(("none", "auto"), (jnp.bfloat16, jnp.float16)):
        if kernel == "none":
            with refused("kernel none"):
                call(A, B, ONE, ONE, kernel=kernel, dtype=dtype)
        else:
            assert_bitwise_equal(call(A, B, ONE, ONE, dtype=dtype), gemm(A, B, out_dtype=dtype))
