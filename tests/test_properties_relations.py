"""What the rules imply for two calls of one GEMM: relations that hold bit for bit, without oracle.

Each names its reason. All are tried on the kernels themselves, with the plan given.
"""

import math

import numpy as np
import strategies as draw
from hypothesis import given
from hypothesis import strategies as st

import mmaemu_jax as mj
from mmaemu_jax.accumulate import AccumulationPlan
from mmaemu_jax.formats import E4M3, E5M2, Fp8Format, format_of
from mmaemu_jax.instruction import InstructionModel
from mmaemu_jax.testing import assert_bitwise_equal

SIGN = np.uint8(0x80)
F32 = np.dtype(np.float32)


def negative(x: np.ndarray) -> np.ndarray:
    """Every sign flipped, of zeros and NaN too."""
    return (x.view(np.uint8) ^ SIGN).view(x.dtype)


def zeros_of_any_sign(data, fmt: Fp8Format, shape: tuple[int, ...]) -> np.ndarray:
    return (data.draw(draw.free_codes(fmt, shape)).view(np.uint8) & SIGN).view(fmt.dtype)


def drawn(data, m: int = 9, n: int = 20, k: int = 400, finite: bool = False, **options):
    """A setting, and operands up to this size."""
    setting = data.draw(draw.gemm_settings(**options))
    shape = [data.draw(st.integers(1, most)) for most in (m, n, k)]
    a, b = data.draw(draw.matrices(*shape, *data.draw(draw.format_pairs), finite=finite))
    return {"model": setting.model, "plan": setting.plan}, a, b


def indices(data, size: int) -> list[int]:
    return data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=size + 3))


# -------------------------------------------------------------------------- rows, columns, operands


@given(st.data())
def test_an_output_depends_on_its_row_and_its_column_alone(data):
    """Whatever rows and columns are picked, in which order and how often."""
    options, a, b = drawn(data, m=40, n=70)
    rows, columns = indices(data, len(a)), indices(data, len(b))
    y = mj.host.gemm(a, b, **options)
    assert_bitwise_equal(mj.host.gemm(a[rows], b[columns], **options), y[rows][:, columns])


@given(st.data(), draw.scales, draw.scales, draw.output_dtypes)
def test_the_transposed_problem_has_the_transposed_result(data, scale_a, scale_b, out_dtype):
    """Products (R3) and scales (R16) commute, and a plan sees K alone (R10 to R13)."""
    options, a, b = drawn(data)
    options["out_dtype"] = out_dtype
    y = mj.host.gemm(a, b, scale_a, scale_b, **options)
    assert_bitwise_equal(mj.host.gemm(b, a, scale_b, scale_a, **options), y.T)


@given(st.data(), draw.scales, draw.scales, draw.output_dtypes)
def test_a_row_of_zeros(data, scale_a, scale_b, out_dtype):
    """Zeros of any sign times finite numbers give +0 (R7, R17), or NaN with an infinite alpha."""
    options, a, b = drawn(data, finite=True)
    a[0] = zeros_of_any_sign(data, format_of(a.dtype), a[0].shape)
    y = mj.host.gemm(a, b, scale_a, scale_b, out_dtype=out_dtype, **options)[0]
    with np.errstate(all="ignore"):
        alpha = scale_a * scale_b
    if np.isfinite(alpha):
        assert_bitwise_equal(y, np.zeros(y.shape, out_dtype))
    else:
        assert np.isnan(y.astype(np.float32)).all()


# ------------------------------------------------------------------------------------------- signs


@given(st.data(), draw.scales, draw.scales, draw.output_dtypes, st.none() | draw.scales)
def test_signs_move_between_operands_and_scales(data, scale_a, scale_b, out_dtype, scale_result):
    """(-a) (-b) = a b, and -a with scale s is a with scale -s: truncation (R5, R7) and rounding are
    symmetric, and zeros are +0 on both sides."""
    options, a, b = drawn(data)
    options["out_dtype"] = out_dtype
    last = scale_result if format_of(out_dtype) else None
    y = mj.host.gemm(a, b, scale_a, scale_b, last, **options)
    both = mj.host.gemm(negative(a), negative(b), scale_a, scale_b, last, **options)
    assert_bitwise_equal(both, y)
    moved = mj.host.gemm(negative(a), b, -scale_a, scale_b, last, **options)
    assert_bitwise_equal(moved, y)


@given(st.data(), draw.scales, draw.scales)
def test_a_negated_operand_negates_what_is_not_an_exact_zero(data, scale_a, scale_b):
    """R17 makes an exact zero +0 and keeps the sign of one that underflowed; NaN stays NaN."""
    options, a, b = drawn(data)
    y = mj.host.gemm(a, b, scale_a, scale_b, **options)
    with np.errstate(all="ignore"):
        alpha = scale_a * scale_b
    exact_zero = (mj.host.gemm(a, b, **options) == 0) | (alpha == 0)
    flip = np.where(exact_zero | np.isnan(y), np.uint32(0), np.uint32(0x80000000))
    negated = mj.host.gemm(negative(a), b, scale_a, scale_b, **options)
    assert_bitwise_equal(negated, (y.view(np.uint32) ^ flip).view(F32))


@given(st.data(), draw.scales)
def test_a_negated_scale_result_negates_zeros_too(data, scale_result):
    """R18: nothing is added after the product with scale_result."""
    options, a, b = drawn(data)
    options["out_dtype"] = data.draw(st.sampled_from((E4M3, E5M2))).dtype
    y = mj.host.gemm(a, b, 1.0, 1.0, scale_result, **options)
    negated = mj.host.gemm(a, b, 1.0, 1.0, -scale_result, **options)
    is_nan = np.isnan(y.astype(np.float32))
    assert_bitwise_equal(negated, np.where(is_nan, y, negative(y)))


# ----------------------------------------------------------------------------------- powers of two


@given(st.data(), draw.moderate_scales, draw.moderate_scales, st.integers(-40, 40))
def test_a_power_of_two_in_a_scale_is_one_in_the_result(data, scale_a, scale_b, power):
    """R16, R17: while alpha and y are normal float32, rounding does not see it."""
    options, a, b = drawn(data)
    y = mj.host.gemm(a, b, scale_a, scale_b, **options)
    scaled = mj.host.gemm(a, b, np.ldexp(scale_a, power), scale_b, **options)
    desired = np.ldexp(y, power)
    desired.view(np.uint32)[np.isnan(y)] = 0x7FFFFFFF
    assert_bitwise_equal(scaled, desired)


@given(st.data(), st.integers(1, 5))
def test_a_power_of_two_in_normal_operands_is_one_in_the_result(data, power):
    """Alignment (R4), truncation (R5, R7) and fp32 sums are relative. Not so for a subnormal code,
    whose exponent is emin (R2)."""
    options, a, b = drawn(data, finite=True)
    fmt = format_of(a.dtype)
    with np.errstate(over="ignore"):
        doubled = np.ldexp(a.astype(np.float32), power)
    keep = (np.abs(a.astype(np.float32)) >= 2.0**fmt.emin) & (np.abs(doubled) <= fmt.max_finite)
    codes = np.where(keep, a.view(np.uint8), np.uint8(0))
    moved = np.where(keep, codes + np.uint8(power << fmt.mantissa_bits), codes)
    y = mj.host.gemm(codes.view(fmt.dtype), b, **options)
    scaled = mj.host.gemm(moved.astype(np.uint8).view(fmt.dtype), b, **options)
    assert_bitwise_equal(scaled, np.ldexp(y, power))


# ----------------------------------------------------------------------------------- the order of K


@given(st.data())
def test_products_of_one_block_may_be_reordered(data):
    """R6: a block's terms are added exactly."""
    options, a, b = drawn(data)
    block = options["model"].nfma
    order = np.arange(a.shape[1])
    for start in range(0, len(order), block):
        part = order[start : start + block]
        order[start : start + block] = data.draw(st.permutations(part.tolist()))
    y = mj.host.gemm(a, b, **options)
    assert_bitwise_equal(mj.host.gemm(a[:, order], b[:, order], **options), y)


def tiles_of_a_split(plan: AccumulationPlan, k: int) -> int:
    """q of R13."""
    return math.ceil(math.ceil(k / plan.tile_k) / plan.splits)


def same_tiles(plan: AccumulationPlan, k: int, padded: int) -> bool:
    """Each split owns the same elements of K after padding: contiguous splits are cut anew."""
    if plan.splits == 1 or plan.interleaved:
        return True
    return tiles_of_a_split(plan, k) == tiles_of_a_split(plan, padded)


@given(st.data(), st.integers(1, 200))
def test_zeros_after_the_end_of_k_change_nothing(data, extra):
    """A chain that meets zeros keeps its accumulator, whose bits were cut on the same grid before
    (R4, R5, R7), and +0 is added to sums that are never -0. So K may be padded, if no split gets
    other tiles by it (R13)."""
    options, a, b = drawn(data)
    k = a.shape[1]
    if not same_tiles(options["plan"], k, k + extra):
        extra = -k % options["plan"].tile_k
    # One operand zero is enough where the other is finite.
    padding_a = zeros_of_any_sign(data, format_of(a.dtype), (len(a), extra))
    padding_b = data.draw(draw.free_codes(format_of(b.dtype), (len(b), extra)))
    y = mj.host.gemm(a, b, **options)
    padded = mj.host.gemm(np.hstack([a, padding_a]), np.hstack([b, padding_b]), **options)
    assert_bitwise_equal(padded, y)


@given(st.data(), st.integers(1, 4), st.floats(0, 1))
def test_whole_blocks_of_zeros_anywhere_change_nothing_in_a_chain(data, count, place):
    """R9: a block of zeros leaves the accumulator as it is. (Slow: whole chunks, R11.)"""
    options, a, b = drawn(data, max_splits=1)
    unit = options["plan"].chunk_k or options["model"].nfma
    at = int(place * (a.shape[1] // unit)) * unit
    with_zeros = [
        np.hstack([x[:, :at], np.zeros((len(x), count * unit), x.dtype), x[:, at:]]) for x in (a, b)
    ]
    y = mj.host.gemm(a, b, **options)
    assert_bitwise_equal(mj.host.gemm(*with_zeros, **options), y)


# --------------------------------------------------------------------- plans, out of smaller plans


def chain(a, b, model: InstructionModel) -> np.ndarray:
    return mj.host.gemm(a, b, model=model)


@given(st.data())
def test_a_chain_goes_on_where_another_ended(data):
    """R9: the accumulator is all that a block passes on."""
    setting = data.draw(draw.gemm_settings())
    model, k = setting.model, data.draw(st.integers(1, 200))
    a, b = data.draw(draw.matrices(3, 4, k, *data.draw(draw.format_pairs), finite=False))
    cut = data.draw(st.integers(0, k // model.nfma)) * model.nfma
    first = chain(a[:, :cut], b[:, :cut], model)
    second = mj.host.gemm(a[:, cut:], b[:, cut:], c=first, model=model)
    assert_bitwise_equal(second, chain(a, b, model))


def added(parts: list[np.ndarray]) -> np.ndarray:
    """((+0 + p0) + p1) + ... in float32."""
    total = np.zeros_like(parts[0])
    for part in parts:
        total = total + part
    return total


def elements_of_splits(plan: AccumulationPlan, k: int) -> list[np.ndarray]:
    """The positions in K that each split owns, in its order (R12, R13)."""
    if plan.splits == 1:
        return [np.arange(k)]
    tile = np.arange(k) // plan.tile_k
    owner = tile % plan.splits if plan.interleaved else tile // tiles_of_a_split(plan, k)
    return [np.flatnonzero(owner == s) for s in range(plan.splits)]


def combined(parts: list[np.ndarray], pairwise: bool) -> np.ndarray:
    if not pairwise:
        return added(parts)
    *others, last = parts
    half = math.ceil(len(parts) / 2)
    slots = [sum(others[i + half : i + half + 1], others[i]) for i in range(half)]
    return added([last, *slots])


@given(st.data())
def test_slow_and_split_gemms_are_sums_of_chains(data):
    """R11 to R13 by chains over parts of K, and numpy's float32 sums."""
    options, a, b = drawn(data, k=1000)
    if data.draw(st.booleans()):  # more often than the families have them
        random = np.random.default_rng(data.draw(draw.seeds))
        a, b = (draw.uneven_tiles(random, E4M3, rows, 1000) for rows in (3, 5))
    model, plan = options["model"], options["plan"]
    parts = []
    for own in elements_of_splits(plan, a.shape[1]):
        step = plan.chunk_k or max(len(own), 1)
        pieces = [own[i : i + step] for i in range(0, max(len(own), 1), step)]
        with np.errstate(invalid="ignore"):
            parts.append(added([chain(a[:, piece], b[:, piece], model) for piece in pieces]))
    with np.errstate(invalid="ignore"):
        desired = combined(parts, plan.pairwise)
    desired.view(np.uint32)[np.isnan(desired)] = 0x7FFFFFFF
    assert_bitwise_equal(mj.host.gemm(a, b, **options), desired)
