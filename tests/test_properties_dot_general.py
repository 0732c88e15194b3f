"""Drawn dimension numbers: emulate and fp8_dot_general are plain GEMMs of rearranged operands."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import strategies as draw
from hypothesis import given
from hypothesis import strategies as st
from training_cases import Case

import mmaemu_jax as mj
from mmaemu_jax import training
from mmaemu_jax.formats import E4M3, E5M2
from mmaemu_jax.testing import assert_bitwise_equal
from mmaemu_jax.training import Quantization, Scaling

BF16 = np.dtype(ml_dtypes.bfloat16)
#: The dimensions that dot_generals are made of, contracted ones first.
SIZES = {"i": 16, "j": 5, "a": 2, "b": 3, "m": 4, "l": 16, "n": 6, "o": 16}


@st.composite
def cases(draw_from, contracted=("i", "ij"), rows=("", "l", "ml"), columns=("", "o", "no")) -> Case:
    """Up to two dimensions of each kind, in any order in each operand."""
    batch = draw_from(st.sampled_from(("", "a", "ab")))
    k, m, n = (draw_from(st.sampled_from(choices)) for choices in (contracted, rows, columns))
    lhs, rhs = ("".join(draw_from(st.permutations(batch + k + own))) for own in (m, n))
    return Case(lhs, rhs, SIZES, batch)


def mnk(case: Case) -> tuple[int, int, int]:
    return tuple(math.prod(case.shape(x)) for x in (case.rows, case.columns, case.contract))


@pytest.mark.filterwarnings("ignore::mmaemu_jax.errors.MmaemuWarning")
@draw.share(0.5)
@given(cases(), draw.format_pairs, draw.gemm_settings(("hopper", "ada")), st.data())
def test_emulate(case, formats, setting, data):
    """Also where its dimensions are no multiples of 16, which are padded."""
    fmt_a, fmt_b = formats if formats[0] != formats[1] else (E4M3, E4M3)
    (m, n, k), batch = mnk(case), math.prod(case.shape(case.batch))
    a, b = data.draw(draw.matrices(batch * m, batch * n, k, fmt_a, fmt_b, finite=False))
    a, b = a.reshape(batch, m, k), b.reshape(batch, n, k)
    lhs = case.unmatrices(a, case.lhs, case.rows, case.contract)
    rhs = case.unmatrices(b.swapaxes(1, 2), case.rhs, case.contract, case.columns)

    def program(lhs, rhs):
        precision = None if setting.use_fast_accum else "highest"
        return jax.lax.dot_general(
            lhs, rhs, case.dimension_numbers, precision, preferred_element_type=jnp.float32
        )

    options = {"profile": setting.profile, "splitk": setting.splitk}
    actual = jax.jit(mj.emulate(program, **options))(lhs, rhs)
    desired = [mj.host.accumulate(*pair, **setting.options) for pair in zip(a, b, strict=True)]
    shape = case.shape(case.batch + case.rows + case.columns)
    assert_bitwise_equal(actual, np.stack(desired).reshape(shape))


#: Without scales, whose arithmetic has tests of its own: FP8 values go in, the layouts are tested.
RECIPE = dataclasses.replace(
    training.te_pytorch("current"),
    **{
        tensor: Quantization(fmt, Scaling(timing="unit"))
        for tensor, fmt in (("lhs", "e4m3"), ("rhs", "e4m3"), ("grad", "e5m2"))
    },
)


def by_host(x, w, g) -> list[np.ndarray]:
    """The product of [B, M, K] and [B, K, N] and both gradients, fast and slow as the recipe says;
    the weights' gradient is the GEMM of g^T and x."""

    def gemms(a, b, fast):
        options = {"use_fast_accum": fast, "profile": "hopper", "splitk": 1}
        call = functools.partial(mj.host.scaled_mm, scale_a=1.0, scale_b=1.0, out_dtype=BF16)
        return np.stack([call(*pair, **options) for pair in zip(a, b, strict=True)])

    transposed = [v.swapaxes(1, 2) for v in (x, w, g)]
    dw = gemms(transposed[2], x, False).swapaxes(1, 2)
    return [gemms(x, w, True), gemms(g, transposed[1], False), dw]


@draw.share(0.1)
@given(cases(("i",), ("l", "ml"), ("o", "no")), st.data())
def test_fp8_dot_general(case, data):
    """The result and both gradients."""
    (m, n, k), batch = mnk(case), math.prod(case.shape(case.batch))
    x, w = data.draw(draw.matrices(batch * m, batch * n, k, E4M3, E4M3))
    g, _ = data.draw(draw.matrices(batch * m, 1, n, E5M2, E5M2))
    x, w, g = x.reshape(batch, m, k), w.reshape(batch, n, k).swapaxes(1, 2), g.reshape(batch, m, n)
    result = case.batch + case.rows + case.columns
    # Letters, rows and columns of each operand as matrices; those of the results are the same.
    places = {
        "lhs": (case.lhs, case.rows, case.contract),
        "rhs": (case.rhs, case.contract, case.columns),
        "grad": (result, case.rows, case.columns),
    }
    operands = [
        case.unmatrices(v, *place).astype(BF16)
        for v, place in zip((x, w, g), places.values(), strict=True)
    ]

    @jax.jit
    def program(lhs, rhs, grad):
        options = {"recipe": RECIPE, "profile": "hopper", "splitk": 1}
        dot = functools.partial(
            training.fp8_dot_general, dimension_numbers=case.dimension_numbers, **options
        )
        y, pullback = jax.vjp(dot, lhs, rhs)
        return (y, *pullback(grad))

    for actual, matrix, name in zip(
        program(*operands), by_host(x, w, g), ("grad", "lhs", "rhs"), strict=True
    ):
        assert_bitwise_equal(actual, case.unmatrices(matrix, *places[name]), err_msg=name)
