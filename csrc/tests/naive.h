// The definition again, by another method: doubles instead of integers. Every operation below is
// exact in double unless a comment says where it rounds, so it shares no step with csrc/numerics.
// Needs round to nearest even and unflushed subnormals.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "numerics/formats.h"
#include "numerics/instruction_model.h"
#include "tests/bits.h"

namespace mmaemu::testing {

// R1, from the bit fields: sign, `exponent_bits`, `mantissa_bits`, no special codes.
inline double value_of_fields(uint32_t code, int exponent_bits, int mantissa_bits, int bias) {
  const int field = static_cast<int>(code >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = static_cast<int>(code) & ((1 << mantissa_bits) - 1);
  const int significand = field == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  const double magnitude = std::ldexp(significand, std::max(field, 1) - bias - mantissa_bits);
  return code >> (exponent_bits + mantissa_bits) != 0 ? -magnitude : magnitude;
}

inline double value_of_e4m3(uint32_t code) {
  return (code & 0x7F) == 0x7F ? std::nan("") : value_of_fields(code, 4, 3, 7);
}

inline double value_of_e5m2(uint32_t code) {
  if ((code & 0x7F) > 0x7C) return std::nan("");
  if ((code & 0x7F) == 0x7C) return (code & 0x80) != 0 ? -HUGE_VAL : HUGE_VAL;
  return value_of_fields(code, 5, 2, 15);
}

inline double value_of(const FloatFormat& fp8, uint32_t code) {
  return fp8.has_infinity ? value_of_e5m2(code) : value_of_e4m3(code);
}

struct NaiveProduct {
  double value = 0;
  int exponent = 0;  // e(a) + e(b), not renormalised (R3)
};

inline NaiveProduct naive_product(const FloatFormat& fmt_a, uint32_t a, const FloatFormat& fmt_b,
                                  uint32_t b) {
  const auto exponent = [](const FloatFormat& format, double x) {  // R2
    const int emin = format.has_infinity ? -14 : -6;
    return x == 0 ? emin : std::max(std::ilogb(x), emin);
  };
  const double x = value_of(fmt_a, a);
  const double y = value_of(fmt_b, b);
  return {x * y, exponent(fmt_a, x) + exponent(fmt_b, y)};
}

// x toward zero to `fraction_bits` below its leading bit, and to fp32's grid (R7); never -0.
inline double truncated(double x, int fraction_bits) {
  if (x == 0) return 0;
  const int e = std::max(std::ilogb(x), -126);
  return std::ldexp(std::trunc(std::ldexp(x, fraction_bits - e)), e - fraction_bits) + 0.0;
}

// R3 to R8 for the products of one block; missing ones are zero.
inline uint32_t naive_block_step(const InstructionModel& model, uint32_t c_bits,
                                 const std::vector<NaiveProduct>& products) {
  const double c = float_of(c_bits);
  int alignment = model.min_exp;
  if (!model.late_c && c != 0) alignment = std::max(alignment, std::ilogb(c));
  for (const NaiveProduct& p : products) {
    if (p.value != 0) alignment = std::max(alignment, p.exponent);
  }
  const auto on_grid = [&](double x) {
    return x == 0 ? 0 : std::trunc(std::ldexp(x, model.frac - alignment));
  };
  // At most (4 * 1024 + 2) * 2^40 < 2^53 units.
  double units = model.late_c ? 0 : on_grid(c);
  for (const NaiveProduct& p : products) units += on_grid(p.value);
  const double sum = units == 0 ? 0 : std::ldexp(units, alignment - model.frac);
  const float d = static_cast<float>(truncated(sum, model.frac_out));
  if (!model.late_c) return bits_of(d);
  const volatile float late = d + float_of(c_bits);  // rounds to nearest even
  return bits_of(late);
}

}  // namespace mmaemu::testing
