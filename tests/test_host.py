"""mmaemu_jax.host: the bits of the JAX functions, without JAX."""

import subprocess
import sys
import threading

import jax
import ml_dtypes
import numpy as np
import pytest

import mmaemu_jax as mj
from mmaemu_jax.accumulate import AccumulationPlan
from mmaemu_jax.formats import E4M3, E5M2
from mmaemu_jax.testing import assert_bitwise_equal, cases, families, operands

M, N, K = 13, 48, 336


def pair(family: str, fmt_a=E4M3, fmt_b=E5M2, seed: int = 5):
    a, b = operands(family, fmt_a, fmt_b, M, N, K, seed, finite=False)
    return a.view(fmt_a.dtype), b.view(fmt_b.dtype)


@pytest.mark.parametrize("family", families())
@pytest.mark.parametrize("fast", [True, False])
def test_accumulate(family, fast):
    a, b = pair(family)
    options = {"use_fast_accum": fast, "splitk": (3, "pairwise"), "profile": "ada"}
    desired = mj.accumulate(a, b, **options)
    assert_bitwise_equal(mj.host.accumulate(a, b, **options), np.asarray(desired))


@pytest.mark.parametrize("out_dtype", [np.float32, ml_dtypes.bfloat16, np.float16, E5M2.dtype])
def test_scaled_mm(out_dtype):
    a, b = pair("special_values")
    for scale_b, options in ((2.0**-130, {"use_fast_accum": True}), (0.25, {})):
        scales = (0.37, np.float32(scale_b), None, np.float32(1.5))
        options |= {"out_dtype": out_dtype, "splitk": 1}
        desired = mj.scaled_mm(a, b.T, *scales, **options)
        assert_bitwise_equal(mj.host.scaled_mm(a, b.T, *scales, **options), np.asarray(desired))


@pytest.mark.parametrize("preset", ["ada", "hopper"])
def test_dot_and_block_step(preset):
    for case in cases(shapes=[(6, 6, 40)], family_names=["randn", "accumulator_dominates"]):
        a, b = case.a.view(case.fmt_a.dtype), case.b.view(case.fmt_b.dtype)
        c = np.linspace(-300, 300, 6, dtype=np.float32)
        desired = np.asarray(mj.dot(a, b, c, preset=preset))
        assert_bitwise_equal(mj.host.dot(a, b, c, preset=preset), desired)
        block = mj.get_preset(preset).nfma
        c = desired
        for start in range(0, 40, block):
            part = slice(start, start + block)
            c = mj.host.block_step(a[:, part], b[:, part], c, preset=preset)
        restarted = np.asarray(mj.dot(a, b, desired, preset=preset))
        assert_bitwise_equal(c, restarted)


def test_dot_takes_values():
    values = np.array([[1.5, -2.0, 0.25]], np.float32)
    assert mj.host.dot(values, values, fmt="e4m3")[0] == 6.3125
    assert mj.host.dot(values[:0], values[:0], fmt="e4m3").shape == (0,)


def test_batches_and_layouts():
    """Leading dimensions of 1 are repeated, scales have a batch of their own."""
    a, b = pair("randn")
    model = mj.get_preset("hopper").model
    scales = np.array([0.5, 3.0], np.float32)
    options = {"model": model, "out_dtype": ml_dtypes.bfloat16}
    both = mj.host.gemm(np.stack([a, a[::-1]]), b[None], scales, **options)
    for index, rows in enumerate((a, a[::-1])):
        one = mj.host.gemm(rows, b, scales[index], **options)
        assert_bitwise_equal(both[index], one)
        assert_bitwise_equal(mj.host.gemm(rows, b.T, scales[index], b_layout="kn", **options), one)
    stacked = mj.host.gemm(a[None], b.T[None], scales[:1], b_layout="kn", **options)
    assert_bitwise_equal(stacked[0], both[0])
    c = np.arange(2 * M * N, dtype=np.float32).reshape(2, 1, M, N)
    nested = mj.host.gemm(a[None, None], np.stack([b, -b])[None], scales[:1], c=c, model=model)
    for i, j in np.ndindex(2, 2):
        one = mj.host.gemm(a, (b, -b)[j], 0.5, c=c[i, 0], model=model)
        assert_bitwise_equal(nested[i, j], one)


def test_unaligned_arrays():
    """Views of a file at any offset, as numpy makes them."""
    a, b = (x[:, :32] for x in pair("randn"))
    c = np.arange(M * N, dtype=np.float32).reshape(M, N)
    model = mj.get_preset("ada").model
    shifted = np.frombuffer(b"0" + c.tobytes(), np.uint8)[1:].view(np.float32).reshape(M, N)
    assert not shifted.flags.aligned
    desired = mj.host.gemm(a, b, c=c, model=model)
    assert_bitwise_equal(mj.host.gemm(a, b, c=shifted, model=model), desired)


def test_threads_do_not_change_bits():
    a, b = operands("dominant_exponent", E4M3, E4M3, 130, 130, 600, 1)
    a, b = a.view(E4M3.dtype), b.view(E4M3.dtype)
    model, plan = mj.get_preset("ada").model, AccumulationPlan(chunk_k=128)
    desired = mj.host.gemm(a, b, model=model, plan=plan, threads=1)
    for threads in (2, np.int64(5), 65536, None):
        actual = mj.host.gemm(a, b, model=model, plan=plan, threads=threads, backend="cpu")
        assert_bitwise_equal(actual, desired)
    results = [None] * 4

    def work(i):
        results[i] = mj.host.gemm(a, b, model=model, plan=plan, threads=2)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for result in results:
        assert_bitwise_equal(result, desired)


def test_inside_a_callback():
    """XLA runs callbacks with subnormals flushed; the kernels set their own environment."""
    a, b = pair("subnormal", E4M3, E4M3)
    scale = np.float32(2.0**-132)
    desired = mj.host.scaled_mm(a, b.T, scale, 1.0, out_dtype=np.float32, splitk=1)
    subnormal = (np.abs(desired.view(np.int32)) & 0x7FFFFFFF) < 0x00800000
    assert (subnormal & (desired.view(np.int32) & 0x7FFFFFFF != 0)).any()

    @jax.jit
    def program(x, y):
        def compute(x, y):
            x, y = (np.asarray(v) for v in (x, y))
            return mj.host.scaled_mm(x, y.T, scale, 1.0, out_dtype=np.float32, splitk=1)

        shape = jax.ShapeDtypeStruct((M, N), np.float32)
        return jax.pure_callback(compute, shape, x, y)

    assert_bitwise_equal(np.asarray(program(a, b)), desired)


def test_no_jax_backend_is_started():
    code = """
import ml_dtypes, numpy as np, mmaemu_jax as mj
from jax._src import xla_bridge
a = np.ones((16, 64), np.float32).astype(ml_dtypes.float8_e4m3fn)
mj.host.accumulate(a, a, use_fast_accum=False, splitk=1)
mj.host.scaled_mm(a, a.T, 1.0, 2.0, out_dtype="bf16", splitk=1)
mj.host.dot(a, a, np.ones(16, np.float32))
assert not xla_bridge.backends_are_initialized()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_empty():
    a, b = pair("randn")
    assert mj.host.accumulate(a[:0], b, use_fast_accum=True).shape == (0, N)
    silent = {"profile": "b200-mma-sync-experimental"}  # warns of what it computes
    assert mj.host.accumulate(a[:0], b, use_fast_accum=True, **silent).shape == (0, N)
    zeros = mj.host.accumulate(a[:, :0], b[:, :0], use_fast_accum=True, splitk=1)
    assert_bitwise_equal(zeros, np.zeros((M, N), np.float32))
    out = mj.host.scaled_mm(a[:, :0], b[:, :0].T, 1.0, 1.0, out_dtype=np.float16)
    assert_bitwise_equal(out, np.zeros((M, N), np.float16))
    assert mj.host.scaled_mm(a[:0], b.T, 1.0, 1.0, out_dtype=np.float16).shape == (0, N)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"a": np.ones((2, 3), np.float32)}, TypeError, "float8"),
        ({"a": [[1.0]]}, TypeError, "array"),
        ({"b": np.zeros((2, 4), E4M3.dtype)}, ValueError, "does not fit"),
        ({"b": np.zeros((1, 2, 3), E4M3.dtype)}, ValueError, "do not fit"),
        ({"b_layout": "mn"}, ValueError, "do not fit"),
        ({"backend": "reference"}, mj.errors.BackendUnavailableError, "CPU kernel"),
        ({"backend": "cpu:no"}, ValueError, "unknown backend"),
        ({"scale_a": np.ones(1)}, TypeError, "float32"),
        ({"scale_a": np.ones(2, np.float32)}, ValueError, "scale_a has shape"),
        ({"out_dtype": np.float64}, ValueError, "out_dtype"),
        ({"c": np.zeros((2, 3), np.float32)}, ValueError, "c has shape"),
        ({"c": np.zeros((2, 2))}, TypeError, "^gemm: c must be float32, got float64"),
        ({"c": [[0.0] * 2] * 2}, TypeError, "^gemm: c must be "),
        ({"a": np.zeros(3, E4M3.dtype), "b": np.zeros(3, E4M3.dtype)}, ValueError, "do not fit"),
        (
            {"a": np.zeros((2, 2, 3), E4M3.dtype), "b": np.zeros((3, 2, 3), E4M3.dtype)},
            ValueError,
            r"^gemm: leading dimensions \(2,\), \(3,\), \(1,\), \(1,\) do not fit",
        ),
        ({"backend": "cuda"}, mj.errors.BackendUnavailableError, "^gemm: .*CPU kernel"),
        ({"model": "ada"}, TypeError, "^gemm: model must be a InstructionModel, got str"),
        ({"plan": 128}, TypeError, "^gemm: plan must be a AccumulationPlan, got int"),
        ({"threads": 0}, ValueError, r"^gemm: threads must be in 1\.\.65536, got 0"),
        ({"threads": 65537}, ValueError, "^gemm: threads must be in"),
        ({"threads": True}, TypeError, "^gemm: threads must be an int or None, got True"),
        ({"threads": 1.5}, TypeError, "^gemm: threads must be an int or None"),
    ],
    ids=str,
)
def test_refusals(change, error, text):
    zeros = np.zeros((2, 3), E4M3.dtype)
    given = {"a": zeros, "b": zeros, "model": mj.get_preset("ada").model} | change
    with pytest.raises(error, match=text):
        mj.host.gemm(given.pop("a"), given.pop("b"), **given)


def test_a_jax_array_is_refused():
    with pytest.raises(TypeError, match="array"):
        mj.host.accumulate(
            jax.numpy.zeros((2, 2), E4M3.dtype), np.zeros((2, 2), E4M3.dtype), use_fast_accum=True
        )


def test_a_block_is_not_a_chain():
    a = np.zeros(17, E4M3.dtype)
    with pytest.raises(ValueError, match="at most 16 products, got 17"):
        mj.host.block_step(a, a)
    with pytest.raises(ValueError, match="must have the same shape"):
        mj.host.block_step(a[0], a[0])
    rows = np.ones((20, 20, 16), np.float32)
    assert_bitwise_equal(mj.host.block_step(rows, rows, fmt="e4m3"), np.full((20, 20), 16, "f4"))
