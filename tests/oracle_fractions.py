"""Third method: the rules in exact rational arithmetic, as close to their text as possible.

Only the data modules (formats, models, plans) are shared with the two implementations.
"""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np

from mmaemu_jax.epilogue import CANONICAL_NAN
from mmaemu_jax.formats import format_of

INF, NAN = math.inf, math.nan

#: Fraction bits, smallest and largest exponent, bit width of the formats that are not FP8.
IEEE = {
    np.dtype(np.float32): (23, -126, 127, 32),
    np.dtype(ml_dtypes.bfloat16): (7, -126, 127, 16),
    np.dtype(np.float16): (10, -14, 15, 16),
}
FLOAT32 = np.dtype(np.float32)


def floor_log2(x):
    """floor(log2 |x|) of a non-zero rational."""
    e = abs(x.numerator).bit_length() - x.denominator.bit_length()
    return e if abs(x) >= Fraction(2) ** e else e - 1


def truncate(x, grid_exponent):
    """The multiple of 2^grid_exponent next to ``x`` toward zero."""
    grid = Fraction(2) ** grid_exponent
    return math.trunc(x / grid) * grid


def value_of_f32(bits):
    """The Fraction (or float Inf / NaN) a float32 bit pattern stands for; the sign of 0 is lost."""
    bits = int(bits)
    sign, exponent, fraction = (-1) ** (bits >> 31), bits >> 23 & 0xFF, bits & 0x7FFFFF
    if exponent == 0xFF:
        return NAN if fraction else sign * INF
    hidden = 0x800000 if exponent else 0
    return sign * (hidden + fraction) * Fraction(2) ** (max(exponent, 1) - 150)


def value_of_code(code, fmt):
    """R1."""
    exponent, fraction = (code & 0x7F) >> fmt.mantissa_bits, code & ((1 << fmt.mantissa_bits) - 1)
    sign = -1 if code & 0x80 else 1
    if fmt.has_infinity and exponent == 31:
        return NAN if fraction else sign * INF
    if not fmt.has_infinity and code & 0x7F == 0x7F:
        return NAN
    hidden = 1 if exponent else 0
    scale = Fraction(2) ** (max(exponent, 1) - fmt.bias - fmt.mantissa_bits)
    return sign * ((hidden << fmt.mantissa_bits) + fraction) * scale


def code_exponent(value, fmt):
    """e(x) of R2."""
    return max(floor_log2(value), fmt.emin)


def round_to(x, dtype, negative_zero=False):
    """Bits of ``x`` rounded to nearest even in ``dtype`` (fp8: ``x`` within range), R18, R19."""
    fmt = format_of(dtype)
    if fmt:
        fraction_bits, emin, emax, width = fmt.mantissa_bits, fmt.emin, 1000, 8
    else:
        fraction_bits, emin, emax, width = IEEE[dtype]
    if x != x:
        return CANONICAL_NAN[dtype]
    sign = (x < 0 or (x == 0 and negative_zero)) << (width - 1)
    infinity = (emax - emin + 2) << fraction_bits
    if x in (INF, -INF):
        return sign | infinity
    if x == 0:
        return sign
    e = max(floor_log2(x), emin)
    significand = round(abs(x) / Fraction(2) ** (e - fraction_bits))  # Python rounds to even
    return sign | min(((e - emin) << fraction_bits) + significand, infinity)


def round_f32(x):
    """RN32 of a rational that does not overflow."""
    return value_of_f32(round_to(x, FLOAT32))


def block_step(a, b, fmt_a, fmt_b, c, model):
    """R3 to R8 on at most nfma values; the sign of a zero is always +."""
    terms = [
        (x * y, code_exponent(x, fmt_a) + code_exponent(y, fmt_b))
        for x, y in zip(a, b, strict=True)
        if x != 0 and y != 0
    ]
    if not model.late_c and c != 0:
        terms.append((c, floor_log2(c)))
    top = max([model.min_exp, *(e for _, e in terms)])
    total = sum((truncate(value, top - model.frac) for value, _ in terms), Fraction(0))
    if total != 0:
        total = truncate(total, max(floor_log2(total), -126) - model.frac_out)
    return round_f32(total + c) if model.late_c else total


def chain(a, b, fmt_a, fmt_b, c, model):
    """R9."""
    for start in range(0, len(a), model.nfma):
        block = slice(start, start + model.nfma)
        c = block_step(a[block], b[block], fmt_a, fmt_b, c, model)
    return c


def owned(k, plan):
    """The element numbers of each split in its own order; None stands for tile padding."""
    if plan.splits == 1:
        return [list(range(k))]
    count = -(-k // plan.tile_k)
    if plan.interleaved:
        own_tiles = [range(s, count, plan.splits) for s in range(plan.splits)]
    else:
        q = -(-count // plan.splits)
        own_tiles = [range(s * q, min((s + 1) * q, count)) for s in range(plan.splits)]
    return [
        [i if i < k else None for t in tiles for i in range(t * plan.tile_k, (t + 1) * plan.tile_k)]
        for tiles in own_tiles
    ]


def serial(values):
    """((+0 + v0) + v1) + ... in float32."""
    total = Fraction(0)
    for value in values:
        total = round_f32(total + value)
    return total


def accumulate(a, b, fmt_a, fmt_b, c, model, plan):
    """R10 to R13 on finite values."""
    parts = []
    for elements in owned(len(a), plan):
        x = [Fraction(0) if i is None else a[i] for i in elements]
        y = [Fraction(0) if i is None else b[i] for i in elements]
        if not plan.chunk_k:
            parts.append(chain(x, y, fmt_a, fmt_b, c, model))
            continue
        chunks = [slice(i, i + plan.chunk_k) for i in range(0, len(x), plan.chunk_k)]
        parts.append(serial(chain(x[i], y[i], fmt_a, fmt_b, Fraction(0), model) for i in chunks))
    if plan.splits == 1:
        return parts[0]
    if not plan.pairwise:
        return serial(parts)
    last, h = plan.splits - 1, -(-plan.splits // 2)
    slots = [round_f32(parts[i] + parts[i + h]) if i + h < last else parts[i] for i in range(h)]
    return serial([parts[last], *slots])


def dot_value(a, b, fmt_a, fmt_b, c, model, plan):
    """The accumulator with R14: a rational, or Inf or NaN."""
    values = [c, *(ieee_product(x, y) for x, y in zip(a, b, strict=True))]
    special = [v for v in values if v in (INF, -INF) or v != v]
    if special:
        return sum(special)
    finite = [[v if isinstance(v, Fraction | int) else Fraction(0) for v in w] for w in (a, b)]
    return accumulate(*finite, fmt_a, fmt_b, c, model, plan)


def ieee_product(x, y):
    """x y where NaN, Inf and Inf * 0 follow IEEE."""
    if isinstance(x, float) or isinstance(y, float):
        return (x if isinstance(x, float) else float((x > 0) - (x < 0))) * (
            y if isinstance(y, float) else float((y > 0) - (y < 0))
        )
    return x * y


def multiply_f32(x_bits, y_bits):
    """RN32(x y) as bits, with the sign of a zero."""
    negative = bool((x_bits ^ y_bits) >> 31)
    return round_to(ieee_product(value_of_f32(x_bits), value_of_f32(y_bits)), FLOAT32, negative)


def epilogue_bits(acc, scale_a, scale_b, scale_result, out_dtype):
    """R16 to R19 for one accumulator; the scales are float32 bits."""
    alpha = value_of_f32(multiply_f32(scale_a, scale_b))
    product = ieee_product(acc, alpha)
    y = round_to(product, FLOAT32, negative_zero=False)
    fmt = format_of(out_dtype)
    if fmt and scale_result is not None:
        y = multiply_f32(y, scale_result)
    value = value_of_f32(y)
    if fmt:
        limit = Fraction(fmt.max_finite)
        value = value if value != value else max(-limit, min(limit, value))
    return round_to(value, out_dtype, negative_zero=bool(y >> 31))


def gemm_bits(
    a_codes,
    b_codes,
    fmt_a,
    fmt_b,
    scale_a_bits,
    scale_b_bits,
    scale_result_bits,
    c_bits,
    model,
    plan,
    out_dtype,
):
    """Output bits ``[M, N]`` of codes ``[M, K]`` and ``[N, K]``; c_bits is ``[M, N]`` or None."""
    out_dtype = np.dtype(out_dtype)
    (m, k), n = a_codes.shape, b_codes.shape[0]
    out = np.zeros((m, n), f"uint{8 * out_dtype.itemsize}")
    if k == 0 and c_bits is None:
        return out  # R15
    rows = [[value_of_code(int(code), fmt_a) for code in row] for row in a_codes]
    columns = [[value_of_code(int(code), fmt_b) for code in row] for row in b_codes]
    for i in range(m):
        for j in range(n):
            c = Fraction(0) if c_bits is None else value_of_f32(c_bits[i, j])
            acc = dot_value(rows[i], columns[j], fmt_a, fmt_b, c, model, plan)
            out[i, j] = epilogue_bits(acc, scale_a_bits, scale_b_bits, scale_result_bits, out_dtype)
    return out
