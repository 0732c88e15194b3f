// The roundings of rounding.h against the processor's own float and double arithmetic.

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cpu/ieee_env.h"
#include "numerics/epilogue.h"
#include "numerics/rounding.h"
#include "tests/bits.h"
#include "tests/check.h"
#include "tests/models.h"
#include "tests/naive.h"
#include "tests/random.h"
#include "tests/workload.h"

namespace mmaemu::testing {
namespace {

// A constant expression has no undefined behaviour: zeros are not searched for a leading bit.
static_assert(truncate_to_fp32(false, 0, 3, 13) == 0);
static_assert(round_to_nearest_even(kFp32, true, 0, 3) == 0x80000000u);

void check_operations(uint32_t x, uint32_t y) {
  const volatile float sum = float_of(x) + float_of(y);
  MMAEMU_CHECK(add_fp32(x, y) == canonical_bits(sum), x, y, add_fp32(x, y), bits_of(sum));
  const volatile float product = float_of(x) * float_of(y);
  MMAEMU_CHECK(multiply_fp32(x, y) == canonical_bits(product), x, y, multiply_fp32(x, y),
               bits_of(product));
  const volatile float scaled = std::fma(float_of(x), float_of(y), 0.0f);  // R17
  const uint32_t y17 = scale_accumulator(x, y);
  MMAEMU_CHECK(y17 == canonical_bits(scaled), x, y, y17, bits_of(scaled));
}

// The sign is the leading bit of `sign`, the mantissa the low bits of `mantissa`.
uint32_t fp32_bits(uint32_t sign, uint32_t field, uint32_t mantissa) {
  return (sign & 0x80000000u) | (field << 23) | (mantissa & 0x7FFFFFu);
}

// Both signs of every exponent (zeros, subnormals, Inf and NaN included) with the mantissas where
// ties, carries and payloads are.
std::vector<uint32_t> boundary_patterns() {
  std::vector<uint32_t> patterns;
  const uint32_t exponent_step = kFewerCases ? 5 : 1;  // 255 is a multiple of both
  for (uint32_t field = 0; field < 256; field += exponent_step) {
    for (uint32_t mantissa : {0u, 1u, 0x3FFFFFu, 0x400000u, 0x400001u, 0x7FFFFFu}) {
      for (uint32_t sign : {0u, 0x80000000u}) patterns.push_back(fp32_bits(sign, field, mantissa));
    }
  }
  return patterns;
}

void check_boundaries() {
  const std::vector<uint32_t> patterns = boundary_patterns();
  for (uint32_t x : patterns) {
    for (uint32_t y : patterns) check_operations(x, y);
  }
}

void check_random_bits() {
  Random random(1);
  for (int64_t i = 0; i < cases(4'000'000); ++i) check_operations(random.bits(), random.bits());
}

// Operands whose exponents differ by 0 to 27: cancellations, and ties of every alignment.
void check_near_operands() {
  Random random(2);
  for (int64_t i = 0; i < cases(4'000'000); ++i) {
    const uint32_t field = static_cast<uint32_t>(random.between(0, 254));
    const uint32_t gap = static_cast<uint32_t>(random.between(0, 27));
    // Few set bits make exact ties likely.
    const uint32_t keep = random.one_in(2) ? 0x7FFFFFu : ~0u << random.between(0, 23);
    const uint32_t x = fp32_bits(random.bits(), field, random.bits() & keep);
    const uint32_t y =
        fp32_bits(random.bits(), field > gap ? field - gap : 0, random.bits() & keep);
    check_operations(x, y);
    check_operations(y, x);
  }
}

// Products around the smallest subnormal, and around the overflow.
void check_range_ends() {
  Random random(3);
  for (int64_t i = 0; i < cases(2'000'000); ++i) {
    const int64_t target = random.one_in(2) ? random.between(-152, -124) : random.between(124, 130);
    const int64_t field = random.between(1, 254);
    const int64_t other = target + 254 - field;
    if (other < 1 || other > 254) continue;
    const uint32_t x = fp32_bits(0, static_cast<uint32_t>(field), random.bits());
    const uint32_t y = fp32_bits(random.bits(), static_cast<uint32_t>(other), random.bits());
    check_operations(x, y);
  }
}

// RNE of magnitude * 2^exponent to a format, in doubles: nearbyint rounds, the rest is exact.
uint32_t naive_round(const FloatFormat& format, bool negative, double x) {
  const uint32_t sign = negative ? format.sign_bit() : 0;
  if (x == 0) return sign;
  const int e = std::max(std::ilogb(x), format.emin());
  const double units = std::nearbyint(std::ldexp(x, format.mantissa_bits - e));
  const double hidden_bit = std::ldexp(1.0, format.mantissa_bits);
  const double code = (e + format.bias - 1) * hidden_bit + units;
  if (format.has_infinity && code >= format.infinity()) return sign | format.infinity();
  return sign | static_cast<uint32_t>(code);
}

void check_round_to_formats() {
  Random random(4);
  for (int64_t i = 0; i < cases(2'000'000); ++i) {
    const FloatFormat& format = random.pick(kOutputs);
    const int width = static_cast<int>(random.between(1, 53));
    const uint64_t keep = random.one_in(2) ? ~uint64_t{0} : ~uint64_t{0} << random.between(0, 52);
    const uint64_t magnitude = (random.next() >> (64 - width)) & keep;
    // The leading bit anywhere from far below the subnormals to above the overflow.
    const int top = format.has_infinity ? format.bias + 3 : format.bias;
    const int leading = static_cast<int>(random.between(format.emin() - 60, top));
    const int exponent = leading - width;
    const double x = std::ldexp(static_cast<double>(magnitude), exponent);
    const uint32_t expected = naive_round(format, (i & 1) != 0, x);
    const uint32_t actual = round_to_nearest_even(format, (i & 1) != 0, magnitude, exponent);
    MMAEMU_CHECK(actual == expected, magnitude, exponent, format.bits(), actual, expected);
  }
}

// 64-bit magnitudes, which a double cannot hold: the integer conversion of the processor rounds.
void check_round_wide() {
  Random random(5);
  for (int64_t i = 0; i < cases(1'000'000); ++i) {
    const uint64_t keep = ~uint64_t{0} << random.between(0, 63);
    const volatile uint64_t magnitude = (random.next() >> random.between(0, 40)) & keep;
    const volatile float expected = static_cast<float>(magnitude);
    const uint32_t actual = round_to_nearest_even(kFp32, false, magnitude, 0);
    MMAEMU_CHECK(actual == bits_of(expected), uint64_t{magnitude}, actual, bits_of(expected));
  }
}

void check_truncate() {
  Random random(6);
  for (int64_t i = 0; i < cases(2'000'000); ++i) {
    const int frac_out = static_cast<int>(random.between(1, kMaxFracOut));
    const int width = static_cast<int>(random.between(1, 53));
    const uint64_t magnitude = random.next() >> (64 - width);
    const int exponent = static_cast<int>(random.between(-200, 127)) - width;
    const bool negative = random.one_in(2);
    const double x = std::ldexp(static_cast<double>(magnitude), exponent);
    const float expected = static_cast<float>(truncated(negative ? -x : x, frac_out));
    const uint32_t actual = truncate_to_fp32(negative, magnitude, exponent, frac_out);
    MMAEMU_CHECK(actual == bits_of(expected), magnitude, exponent, frac_out, actual);
  }
}

// 64-bit magnitudes: the highest frac_out + 1 bits are kept.
void check_truncate_wide() {
  Random random(8);
  for (int64_t i = 0; i < 2000; ++i) {
    const int frac_out = static_cast<int>(random.between(1, kMaxFracOut));
    const uint64_t magnitude = (random.one_in(2) ? ~uint64_t{0} : random.next()) | uint64_t{1}
                                                                                       << 63;
    const uint64_t kept = magnitude >> (63 - frac_out) << (63 - frac_out);
    const uint32_t actual = truncate_to_fp32(false, magnitude, 0, frac_out);
    const uint32_t expected = bits_of(static_cast<float>(kept));  // exact: at most 24 bits
    MMAEMU_CHECK(actual == expected, magnitude, frac_out, actual, expected);
  }
}

// The ends of the ranges that is_nan_fp32 and is_inf_fp32 tell apart.
void check_classes() {
  for (const uint32_t sign : {0u, 0x80000000u}) {
    for (const uint32_t magnitude : {0u, 1u, 0x7F7FFFFFu, 0x7F800000u, 0x7F800001u, 0x7FFFFFFFu}) {
      const uint32_t bits = sign | magnitude;
      MMAEMU_CHECK(is_nan_fp32(bits) == std::isnan(float_of(bits)), bits);
      MMAEMU_CHECK(is_inf_fp32(bits) == std::isinf(float_of(bits)), bits);
    }
    // 2 is the number whose bits are a zero's but for the one below the sign.
    check_operations(sign | 0x40000000u, 0x7F800000u);
    check_operations(0x7F800000u, sign | 0x40000000u);
  }
}

void check_shifts() {
  Random random(7);
  for (int n = 0; n <= 200; ++n) {
    for (uint64_t x : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}, uint64_t{1} << 63, random.next()}) {
      const uint64_t floor = n < 64 ? x >> n : 0;
      const bool exact = n < 64 ? floor << n == x : x == 0;
      MMAEMU_CHECK(shift_right_truncate(x, n) == floor, x, n);
      MMAEMU_CHECK(shift_right_jam(x, n) == (floor | uint64_t{!exact}), x, n);
    }
  }
}

}  // namespace
}  // namespace mmaemu::testing

int main() {
  using namespace mmaemu::testing;
  const mmaemu::cpu::ScopedIeeeEnv ieee;
  check_shifts();
  check_classes();
  check_boundaries();
  check_random_bits();
  check_near_operands();
  check_range_ends();
  check_round_to_formats();
  check_round_wide();
  check_truncate();
  check_truncate_wide();
  return finish();
}
