"""The JAX functions on drawn operands: reference, jit, eager, vmap and numpy give one answer.

Programs are few and compiled once each; what is drawn are their operands.
"""

import functools

import jax
import ml_dtypes
import numpy as np
import pytest
import strategies as draw
from hypothesis import given
from hypothesis import strategies as st

import mmaemu_jax as mj
from mmaemu_jax.formats import E4M3, E5M2
from mmaemu_jax.testing import assert_bitwise_equal

pytestmark = pytest.mark.filterwarnings("ignore::mmaemu_jax.errors.MmaemuWarning")

M, N, K = 3, 32, 176
BF16 = np.dtype(ml_dtypes.bfloat16)
#: Formats, output, and options of scaled_mm; between them every output, mode and scheme.
PROGRAMS = {
    "hopper": (E4M3, E5M2, np.float32, draw.Setting("hopper", False, (1, "none"))),
    "hopper split": (E4M3, E4M3, BF16, draw.Setting("hopper", True, (2, "contiguous"))),
    "ada pairwise": (E5M2, E4M3, np.float16, draw.Setting("ada", False, (3, "pairwise"))),
    "ada serial": (E4M3, E4M3, E4M3.dtype, draw.Setting("ada", True, (2, "serial"))),
    "b200": (E4M3, E5M2, E5M2.dtype, draw.Setting("b200-mma-sync-experimental", True, (1, "none"))),
}
drawn_programs = st.sampled_from(tuple(PROGRAMS))


def call(name: str, a, b, scale_a, scale_b, scale_result, function=mj.scaled_mm, **options):
    """scaled_mm of a program; b is [N, K]."""
    *_, out_dtype, setting = PROGRAMS[name]
    options = {**setting.options, **options}
    return function(a, b.T, scale_a, scale_b, None, scale_result, out_dtype, **options)


@functools.cache
def jitted(name: str, backend: str):
    return jax.jit(functools.partial(call, name, backend=backend))


@functools.cache
def mapped(name: str, axes: tuple):
    return jax.jit(jax.vmap(functools.partial(call, name), axes))


def drawn_operands(data, name: str) -> tuple:
    fmt_a, fmt_b, *_ = PROGRAMS[name]
    pair = data.draw(draw.matrices(M, N, K, fmt_a, fmt_b, finite=False))
    return (*pair, *(data.draw(draw.scales | st.just(np.float32(1))) for _ in range(3)))


def on_host(name: str, operands: tuple) -> np.ndarray:
    return call(name, *operands, function=mj.host.scaled_mm)


@given(drawn_programs, st.data())
def test_kernels_reference_and_numpy(name, data):
    operands = drawn_operands(data, name)
    desired = on_host(name, operands)
    assert_bitwise_equal(jitted(name, "auto")(*operands), desired)
    assert_bitwise_equal(jitted(name, "reference")(*operands), desired)
    assert_bitwise_equal(call(name, *operands), desired)


#: in_axes of a, b and the three scales.
MAPPED = ((0, None, None, None, None), (0, None, 0, None, None), (None, None, None, 0, 0))


@given(st.sampled_from(("hopper", "ada serial")), st.data())
def test_vmap_is_a_loop(name, data):
    """Any operands mapped."""
    batch = [drawn_operands(data, name) for _ in range(2)]
    axes = data.draw(st.sampled_from(MAPPED))
    pairs = list(zip(axes, *batch, strict=True))
    operands = [x if axis is None else np.stack([x, y]) for axis, x, y in pairs]
    alone = [tuple(pair[0] if axis is None else pair[i] for axis, *pair in pairs) for i in range(2)]
    desired = np.stack([on_host(name, own) for own in alone])
    assert_bitwise_equal(mapped(name, axes)(*operands), desired)


@functools.cache
def jitted_dot(backend: str):
    return jax.jit(functools.partial(mj.dot, preset="hopper", backend=backend))


@given(st.data())
def test_dot(data):
    """From any accumulator, subnormal ones included (R26)."""
    a, b = data.draw(draw.matrices(4, 4, 70, E5M2, E4M3, finite=False))
    c = np.array([data.draw(draw.scales) for _ in range(4)])
    desired = mj.host.dot(a, b, c, preset="hopper")
    for backend in ("auto", "reference"):
        assert_bitwise_equal(jitted_dot(backend)(a, b, c), desired)


@functools.cache
def contracted(parts: int, reduce_dtype):
    how = mj.Contraction("per_device", parts=parts, reduce_dtype=reduce_dtype)
    local = functools.partial(mj.accumulate, use_fast_accum=False, profile="hopper", splitk=1)
    return jax.jit(functools.partial(mj.contract, local, contraction=how))


@draw.share(0.5)
@given(st.sampled_from(((2, np.dtype(np.float32)), (4, BF16))), st.data())
def test_a_contraction_is_the_sum_of_its_slices(how, data):
    """R24: local GEMMs, rounded to the dtype of the reduction, and its sums in rank order."""
    parts, reduce_dtype = how
    a, b = data.draw(draw.matrices(3, 8, 320, E4M3, E4M3))
    options = {"use_fast_accum": False, "profile": "hopper", "splitk": 1}
    slices = zip(np.split(a, parts, axis=1), np.split(b, parts, axis=1), strict=True)
    first, *others = [mj.host.accumulate(*pair, **options).astype(reduce_dtype) for pair in slices]
    total = first.astype(np.float32)
    for part in others:
        total = (total + part.astype(np.float32)).astype(reduce_dtype).astype(np.float32)
    assert_bitwise_equal(contracted(*how)(a, b), total)
