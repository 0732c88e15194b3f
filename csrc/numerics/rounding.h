// The one place that rounds: exact integers to a format, and the fp32 operations built on it.
// fp32 numbers travel as their bits, so nothing here depends on the floating-point environment.
#pragma once

#include <cstdint>

#include "numerics/formats.h"
#include "numerics/portability.h"

namespace mmaemu {

// x >> n toward zero, for any n >= 0.
MMAEMU_HD constexpr uint64_t shift_right_truncate(uint64_t x, int n) {
  return n >= 64 ? 0 : x >> n;
}

// x >> n where any bit shifted out is kept as a one in the lowest place ("jam"): enough for a
// correct rounding as long as at least two places remain below the rounding position.
MMAEMU_HD constexpr uint64_t shift_right_jam(uint64_t x, int n) {
  if (n == 0) return x;
  if (n >= 64) return x != 0;
  return (x >> n) | ((x << (64 - n)) != 0);
}

// Rounds magnitude * 2^exponent to nearest even in `format` (R17, R18), subnormals included;
// overflow gives Inf (a format without one never overflows here: its input is saturated).
MMAEMU_HD constexpr uint32_t round_to_nearest_even(const FloatFormat& format, bool negative,
                                                   uint64_t magnitude, int exponent) {
  const uint32_t sign = negative ? format.sign_bit() : 0;
  if (magnitude == 0) return sign;
  const int leading = floor_log2(magnitude) + exponent;
  const int e = leading > format.emin() ? leading : format.emin();
  // The result counts units of 2^(e - mantissa_bits).
  const int shift = e - format.mantissa_bits - exponent;
  uint64_t units = 0;
  if (shift <= 0) {
    units = magnitude << -shift;  // exact: the result has at most mantissa_bits + 1 bits
  } else {
    const uint64_t jammed = shift_right_jam(magnitude, shift > 2 ? shift - 2 : 0)
                            << (shift > 2 ? 0 : 2 - shift);
    const uint64_t odd = (jammed >> 2) & 1;
    units = (jammed + 1 + odd) >> 2;  // two extra places: half is 0b10
  }
  // Adding the units carries into the exponent field on its own when rounding crosses a binade.
  const uint64_t field_base = static_cast<uint64_t>(e + format.bias - 1) << format.mantissa_bits;
  const uint64_t packed = field_base + units;
  if (format.has_infinity && packed >= format.infinity()) return sign | format.infinity();
  return sign | static_cast<uint32_t>(packed);
}

// Truncates magnitude * 2^exponent toward zero to frac_out fraction bits and to the fp32 grid
// (R7); a zero result is +0. Requires frac_out <= 23, so that the result is an fp32 number.
MMAEMU_HD constexpr uint32_t truncate_to_fp32(bool negative, uint64_t magnitude, int exponent,
                                              int frac_out) {
  if (magnitude == 0) return 0;
  const int leading = floor_log2(magnitude) + exponent;
  const int e = leading > kFp32.emin() ? leading : kFp32.emin();
  const int shift = e - frac_out - exponent;
  const uint64_t units = shift > 0 ? shift_right_truncate(magnitude, shift) : magnitude << -shift;
  return units == 0 ? 0 : round_to_nearest_even(kFp32, negative, units, e - frac_out);
}

// A finite fp32 number as (-1)^negative * magnitude * 2^exponent.
struct Unpacked {
  bool negative;
  uint64_t magnitude;
  int exponent;
};

MMAEMU_HD constexpr Unpacked unpack_fp32(uint32_t bits) {
  const Decoded d = decode(kFp32, bits);
  return {d.negative, d.significand, d.exponent - kFp32.mantissa_bits};
}

MMAEMU_HD constexpr bool is_nan_fp32(uint32_t bits) { return (bits & 0x7FFFFFFFu) > 0x7F800000u; }
MMAEMU_HD constexpr bool is_inf_fp32(uint32_t bits) { return (bits & 0x7FFFFFFFu) == 0x7F800000u; }

// RN32(x + y). Exact cancellation is +0, as IEEE round-to-nearest has it, and -0 comes only from
// two -0; NaN is canonical.
MMAEMU_HD constexpr uint32_t add_fp32(uint32_t x, uint32_t y) {
  if (is_nan_fp32(x) || is_nan_fp32(y)) return kFp32.canonical_nan;
  if (is_inf_fp32(x)) return is_inf_fp32(y) && x != y ? kFp32.canonical_nan : x;
  if (is_inf_fp32(y)) return y;
  Unpacked big = unpack_fp32(x);
  Unpacked small = unpack_fp32(y);
  // A zero carries the lowest exponent, so it never hides the other operand's bits below.
  if (big.exponent < small.exponent) {
    const Unpacked swap = big;
    big = small;
    small = swap;
  }
  // 38 places below the larger operand: the jammed bit stays below every rounding position.
  constexpr int kGuard = 38;
  const uint64_t aligned_big = big.magnitude << kGuard;
  const uint64_t aligned_small =
      shift_right_jam(small.magnitude << kGuard, big.exponent - small.exponent);
  const int exponent = big.exponent - kGuard;
  if (big.negative == small.negative) {
    return round_to_nearest_even(kFp32, big.negative, aligned_big + aligned_small, exponent);
  }
  if (aligned_big == aligned_small) return 0;
  return aligned_big > aligned_small
             ? round_to_nearest_even(kFp32, big.negative, aligned_big - aligned_small, exponent)
             : round_to_nearest_even(kFp32, small.negative, aligned_small - aligned_big, exponent);
}

// RN32(x * y): one rounding of the exact 48-bit product; NaN is canonical.
MMAEMU_HD constexpr uint32_t multiply_fp32(uint32_t x, uint32_t y) {
  if (is_nan_fp32(x) || is_nan_fp32(y)) return kFp32.canonical_nan;
  const uint32_t sign = (x ^ y) & kFp32.sign_bit();
  const bool x_zero = (x << 1) == 0;
  const bool y_zero = (y << 1) == 0;
  if (is_inf_fp32(x) || is_inf_fp32(y)) {
    return x_zero || y_zero ? kFp32.canonical_nan : sign | kFp32.infinity();
  }
  const Unpacked a = unpack_fp32(x);
  const Unpacked b = unpack_fp32(y);
  return round_to_nearest_even(kFp32, sign != 0, a.magnitude * b.magnitude,
                               a.exponent + b.exponent);
}

static_assert(add_fp32(0x3F800000u, 0x33800000u) == 0x3F800000u);  // 1 + 2^-24: tie to even
static_assert(add_fp32(0x3F800000u, 0x33800001u) == 0x3F800001u);  // just above the tie
static_assert(add_fp32(0x00000001u, 0x80000001u) == 0);            // cancellation is +0
static_assert(multiply_fp32(0x00000001u, 0x3F000000u) == 0);       // 2^-150 ties to zero
static_assert(multiply_fp32(0x00000003u, 0x3F000000u) == 2);       // 1.5 units tie to even
static_assert(multiply_fp32(0x7F000000u, 0x40800000u) == 0x7F800000u);

}  // namespace mmaemu
