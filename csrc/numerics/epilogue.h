// From the fp32 accumulator to the output code (R16 to R19).
#pragma once

#include <cstdint>

#include "numerics/formats.h"
#include "numerics/portability.h"
#include "numerics/rounding.h"

namespace mmaemu {

// R18: saturation to the largest finite value, Inf included, then RNE; NaN is canonical.
MMAEMU_HD constexpr uint32_t saturate_to_fp8(const FloatFormat& format, uint32_t y_bits) {
  if (is_nan_fp32(y_bits)) return format.canonical_nan;
  const bool negative = (y_bits & kFp32.sign_bit()) != 0;
  const uint32_t sign = negative ? format.sign_bit() : 0;
  const Decoded max_finite = decode(format, format.max_finite);
  const uint32_t max_as_fp32 = round_to_nearest_even(kFp32, false, max_finite.significand,
                                                     max_finite.exponent - format.mantissa_bits);
  if ((y_bits & ~kFp32.sign_bit()) >= max_as_fp32) return sign | format.max_finite;
  const Unpacked y = unpack_fp32(y_bits);
  return round_to_nearest_even(format, negative, y.magnitude, y.exponent);
}

// R18: RNE of fp32 bits to a 16-bit format; NaN is canonical.
MMAEMU_HD constexpr uint32_t round_to_16_bits(const FloatFormat& format, uint32_t y_bits) {
  if (is_nan_fp32(y_bits)) return format.canonical_nan;
  const bool negative = (y_bits & kFp32.sign_bit()) != 0;
  if (is_inf_fp32(y_bits)) return (negative ? format.sign_bit() : 0) | format.infinity();
  const Unpacked y = unpack_fp32(y_bits);
  return round_to_nearest_even(format, negative, y.magnitude, y.exponent);
}

// R17: RN32(acc * alpha + (+0)); the +0 addend turns a zero product of either sign into +0, where
// the exact product is zero. A product that underflows to zero keeps its sign.
MMAEMU_HD constexpr uint32_t scale_accumulator(uint32_t acc_bits, uint32_t alpha_bits) {
  const bool exact_zero = (acc_bits << 1) == 0 || (alpha_bits << 1) == 0;
  const uint32_t y = multiply_fp32(acc_bits, alpha_bits);
  return exact_zero && (y << 1) == 0 ? 0 : y;
}

struct Epilogue {
  FloatFormat out_format;
  uint32_t alpha_bits;         // RN32(scale_a * scale_b), R16
  uint32_t scale_result_bits;  // used only for an FP8 output
  bool has_scale_result;
};

// R18 and R19 of y, the result of R17.
MMAEMU_HD constexpr uint32_t round_scaled(const Epilogue& epilogue, uint32_t y) {
  const FloatFormat& out = epilogue.out_format;
  if (out.bits() == 32) return y;
  if (out.bits() == 16) return round_to_16_bits(out, y);
  if (epilogue.has_scale_result) y = multiply_fp32(y, epilogue.scale_result_bits);
  return saturate_to_fp8(out, y);
}

MMAEMU_HD constexpr uint32_t apply_epilogue(const Epilogue& epilogue, uint32_t acc_bits) {
  return round_scaled(epilogue, scale_accumulator(acc_bits, epilogue.alpha_bits));
}

static_assert(scale_accumulator(0, 0xBF800000u) == 0);                    // 0 * -1 is +0
static_assert(scale_accumulator(0x7F800000u, 0) == kFp32.canonical_nan);  // Inf * 0
static_assert(saturate_to_fp8(kE4M3, 0x7F800000u) == kE4M3.max_finite);   // Inf saturates
static_assert(saturate_to_fp8(kE5M2, 0xFF800000u) == (0x80u | kE5M2.max_finite));
static_assert(round_to_16_bits(kFp16, 0x477FF000u) == 0x7C00u);  // 65520 overflows

}  // namespace mmaemu
