// Decoding (R1, R2): every code of the FP8 and 16-bit formats against its value in doubles.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "numerics/formats.h"
#include "tests/bits.h"
#include "tests/check.h"
#include "tests/naive.h"

namespace mmaemu::testing {
namespace {

// `value` is what `code` means; `emin` is the format's, given here as a plain number.
void check_code(const FloatFormat& format, uint32_t code, double value, int emin) {
  const Decoded d = decode(format, code);
  if (std::isnan(value)) {
    MMAEMU_CHECK(d.number_class == NumberClass::kNan, code);
    MMAEMU_CHECK(d.significand == 0 && d.exponent == 0, code, d.significand, d.exponent);
    return;
  }
  MMAEMU_CHECK(d.negative == std::signbit(value), code);
  if (std::isinf(value)) {
    MMAEMU_CHECK(d.number_class == NumberClass::kInfinite, code);
    MMAEMU_CHECK(d.significand == 0 && d.exponent == 0, code, d.significand, d.exponent);
    return;
  }
  MMAEMU_CHECK(d.number_class == NumberClass::kFinite, code);
  const double magnitude = std::ldexp(d.significand, d.exponent - format.mantissa_bits);
  MMAEMU_CHECK(magnitude == std::fabs(value), code, d.significand, d.exponent, value);
  const int exponent = value == 0 ? emin : std::max(std::ilogb(value), emin);
  MMAEMU_CHECK(d.exponent == exponent, code, d.exponent, exponent);
}

// What a code counts as in a chain (R14): itself, or +0 with a zero's exponent.
void check_finite_codes(const FloatFormat& format) {
  for (uint32_t code = 0; code < 256; ++code) {
    const bool finite = std::isfinite(value_of(format, code));
    const Decoded expected = decode(format, finite ? code : 0);
    const Decoded d = decode_finite(format, code);
    MMAEMU_CHECK(d.number_class == NumberClass::kFinite, code);
    MMAEMU_CHECK(d.significand == expected.significand && d.exponent == expected.exponent &&
                     d.negative == expected.negative,
                 code, d.significand, d.exponent, d.negative);
  }
}

void check_fp8() {
  for (uint32_t code = 0; code < 256; ++code) {
    check_code(kE4M3, code, value_of_e4m3(code), -6);
    check_code(kE5M2, code, value_of_e5m2(code), -14);
  }
  check_finite_codes(kE4M3);
  check_finite_codes(kE5M2);
}

void check_16_bits() {
  for (uint32_t code = 0; code < 65536; ++code) {
    check_code(kBf16, code, float_of(code << 16), -126);
    const bool special = (code & 0x7C00) == 0x7C00;
    const double infinity = (code & 0x8000) != 0 ? -HUGE_VAL : HUGE_VAL;
    const double value = !special              ? value_of_fields(code, 5, 10, 15)
                         : (code & 0x3FF) == 0 ? infinity
                                               : std::nan("");
    check_code(kFp16, code, value, -14);
  }
}

// Every exponent of fp32 with mantissas at the ends, in the middle and in between.
void check_fp32() {
  for (uint32_t high = 0; high < 512; ++high) {
    for (uint32_t mantissa : {0u, 1u, 2u, 0x155555u, 0x3FFFFFu, 0x400000u, 0x7FFFFEu, 0x7FFFFFu}) {
      const uint32_t code = high << 23 | mantissa;
      check_code(kFp32, code, float_of(code), -126);
    }
  }
}

struct SpecialCounts {
  int nans = 0;
  int infinities = 0;
  int zeros = 0;
};

SpecialCounts count_specials(const FloatFormat& format) {
  SpecialCounts counts;
  for (uint32_t code = 0; code < 256; ++code) {
    const Decoded d = decode(format, code);
    counts.nans += d.number_class == NumberClass::kNan;
    counts.infinities += d.number_class == NumberClass::kInfinite;
    counts.zeros += d.number_class == NumberClass::kFinite && d.significand == 0;
  }
  return counts;
}

void check_specials() {
  const SpecialCounts e4m3 = count_specials(kE4M3);
  MMAEMU_CHECK(e4m3.nans == 2 && e4m3.infinities == 0 && e4m3.zeros == 2, e4m3.nans);
  const SpecialCounts e5m2 = count_specials(kE5M2);
  MMAEMU_CHECK(e5m2.nans == 6 && e5m2.infinities == 2 && e5m2.zeros == 2, e5m2.nans);
}

// The derived numbers, against literals.
void check_constants() {
  MMAEMU_CHECK(value_of_e4m3(kE4M3.max_finite) == 448);
  MMAEMU_CHECK(value_of_e5m2(kE5M2.max_finite) == 57344);
  MMAEMU_CHECK(value_of_fields(kFp16.max_finite, 5, 10, 15) == 65504);
  MMAEMU_CHECK(float_of(kBf16.max_finite << 16) == 0x1.FEp127f);
  MMAEMU_CHECK(float_of(kFp32.max_finite) == 0x1.FFFFFEp127f);
  MMAEMU_CHECK(kE5M2.infinity() == 0x7C && kFp16.infinity() == 0x7C00);
  MMAEMU_CHECK(kBf16.infinity() == 0x7F80 && kFp32.infinity() == 0x7F800000u);
  MMAEMU_CHECK(kFp32.canonical_nan == 0x7FFFFFFFu);  // R19
  MMAEMU_CHECK(kBf16.canonical_nan == 0x7FFF && kFp16.canonical_nan == 0x7FFF);
  MMAEMU_CHECK(kE4M3.canonical_nan == 0x7F && kE5M2.canonical_nan == 0x7F);
  for (const FloatFormat& format : {kE4M3, kE5M2, kFp16, kBf16, kFp32}) {
    const Decoded nan = decode(format, format.canonical_nan);
    MMAEMU_CHECK(nan.number_class == NumberClass::kNan && !nan.negative, format.canonical_nan);
    MMAEMU_CHECK(format.sign_bit() == uint32_t{1} << (format.bits() - 1), format.sign_bit());
  }
  MMAEMU_CHECK(kE4M3.bits() == 8 && kE5M2.bits() == 8 && kFp32.bits() == 32);
  MMAEMU_CHECK(kFp16.bits() == 16 && kBf16.bits() == 16);
}

}  // namespace
}  // namespace mmaemu::testing

int main() {
  using namespace mmaemu::testing;
  check_fp8();
  check_16_bits();
  check_fp32();
  check_specials();
  check_constants();
  return finish();
}
