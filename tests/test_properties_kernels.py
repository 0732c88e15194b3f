"""The CPU kernels on drawn operands: the bits of the rules in exact fractions, on every kernel."""

import numpy as np
import oracle_fractions
import strategies as draw
from hypothesis import given
from hypothesis import strategies as st

import mmaemu_jax as mj
from mmaemu_jax.accumulate import ONE_CHAIN
from mmaemu_jax.formats import format_of
from mmaemu_jax.testing import assert_bitwise_equal


def bits_of_scale(scale) -> int | None:
    return None if scale is None else int(np.asarray(scale).view(np.uint32))


def by_fractions(a, b, scale_a, scale_b, scale_result, c, model, plan, out_dtype) -> np.ndarray:
    """The third method: float32 scales and c, FP8 operands."""
    bits = oracle_fractions.gemm_bits(
        a.view(np.uint8),
        b.view(np.uint8),
        format_of(a.dtype),
        format_of(b.dtype),
        *map(bits_of_scale, (scale_a, scale_b, scale_result)),
        None if c is None else c.view(np.uint32),
        model,
        plan,
        out_dtype,
    )
    return bits.view(out_dtype)


@given(st.data())
def test_gemms_have_the_bits_of_exact_fractions(data):
    """R3 to R19: presets and any model, every plan, format, scale and output."""
    setting = data.draw(draw.gemm_settings())
    model = data.draw(st.just(setting.model) | draw.models())
    m, n, k = data.draw(st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(0, 300)))
    a, b = data.draw(draw.matrices(m, n, k, *data.draw(draw.format_pairs), finite=False))
    scale_a, scale_b = (data.draw(draw.scales | st.just(np.float32(1))) for _ in range(2))
    out_dtype = data.draw(draw.output_dtypes)
    to_fp8 = format_of(out_dtype) is not None
    scale_result = data.draw(st.none() | draw.scales) if to_fp8 else None
    given = {"model": model, "plan": setting.plan, "out_dtype": out_dtype}
    kernel = data.draw(draw.kernels)
    actual = mj.host.gemm(a, b, scale_a, scale_b, scale_result, **given, backend=kernel)
    desired = by_fractions(a, b, scale_a, scale_b, scale_result, None, **given)
    assert_bitwise_equal(actual, desired)


@given(st.data())
def test_chains_from_any_accumulator_have_the_bits_of_exact_fractions(data):
    """R3 to R9 and R14 with c: subnormal, -0, NaN and Inf among them."""
    model = data.draw(st.sampled_from([mj.get_preset(p).model for p in mj.list_presets()]))
    model = data.draw(st.just(model) | draw.models())
    k = data.draw(st.integers(0, 100))
    a, b = data.draw(draw.matrices(2, 1, k, *data.draw(draw.format_pairs), finite=False))
    c = np.array([[data.draw(draw.scales)], [data.draw(draw.scales)]], np.float32)
    one = np.float32(1)
    given = {"model": model, "plan": ONE_CHAIN, "out_dtype": np.dtype(np.float32)}
    actual = mj.host.gemm(a, b, c=c, **given, backend=data.draw(draw.kernels))
    assert_bitwise_equal(actual, by_fractions(a, b, one, one, None, c, **given))


@given(st.data())
def test_kernels_layouts_and_threads_agree(data):
    """R24 on shapes of several tiles, ragged on all sides."""
    setting = data.draw(draw.gemm_settings())
    m, n, k = data.draw(st.tuples(st.integers(1, 40), st.integers(1, 70), st.integers(1, 400)))
    a, b = data.draw(draw.matrices(m, n, k, *data.draw(draw.format_pairs), finite=False))
    scales = [data.draw(draw.moderate_scales) for _ in range(2)]
    given = {"model": setting.model, "plan": setting.plan}
    given["out_dtype"] = data.draw(draw.output_dtypes)
    desired = mj.host.gemm(a, b, *scales, **given, backend="cpu:scalar", threads=1)
    kernel, threads = data.draw(draw.kernels), data.draw(st.integers(1, 4))
    given |= {"backend": kernel, "threads": threads}
    assert_bitwise_equal(mj.host.gemm(a, b, *scales, **given), desired)
    # Views that are not contiguous: [K, N] as a transpose, every second row, reversed columns.
    assert_bitwise_equal(mj.host.gemm(a, b.T, *scales, **given, b_layout="kn"), desired)
    wide = np.repeat(a, 2, axis=0)[::2]
    backwards = np.ascontiguousarray(b[:, ::-1])[:, ::-1]
    assert_bitwise_equal(mj.host.gemm(wide, backwards, *scales, **given), desired)


@given(st.data())
def test_special_values_stay_in_their_row_and_column(data):
    """R14: an output is not finite where IEEE's own sum is not, and else as if they were +0."""
    setting = data.draw(draw.gemm_settings())
    fmt_a, fmt_b = data.draw(draw.format_pairs)
    m, n, k = data.draw(st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 300)))
    a, b = data.draw(draw.matrices(m, n, k, fmt_a, fmt_b))
    specials = [np.flatnonzero(~np.isfinite(fmt.values)).astype(np.uint8) for fmt in (fmt_a, fmt_b)]
    with_specials = []
    for matrix, codes in zip((a, b), specials, strict=True):
        changed = matrix.copy()
        rows, columns = matrix.shape
        place = st.tuples(st.integers(0, rows - 1), st.integers(0, columns - 1))
        for i, j in data.draw(st.lists(place, max_size=3)):
            matrix.view(np.uint8)[i, j] = 0
            changed.view(np.uint8)[i, j] = data.draw(st.sampled_from(codes.tolist()))
        with_specials.append(changed)
    given = {"model": setting.model, "plan": setting.plan}
    actual = mj.host.gemm(*with_specials, **given)
    with np.errstate(invalid="ignore"):
        wide = (x.astype(np.float64) for x in with_specials)
        ieee = np.einsum("mk,nk->mn", *wide)
    desired = np.where(np.isfinite(ieee), mj.host.gemm(a, b, **given), ieee.astype(np.float32))
    desired.view(np.uint32)[np.isnan(desired)] = 0x7FFFFFFF
    assert_bitwise_equal(actual, desired)
