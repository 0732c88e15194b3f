// The floating-point formats as data, and the decoding of FP8 codes (R1, R2).
#pragma once

#include <cstdint>

#include "numerics/portability.h"

namespace mmaemu {

// A binary interchange-like format of up to 32 bits.
struct FloatFormat {
  int mantissa_bits;
  int exponent_bits;
  int bias;
  bool has_infinity;       // false: the all-ones exponent holds finite values (E4M3)
  uint32_t canonical_nan;  // R19
  uint32_t max_finite;     // bits of the largest finite value

  MMAEMU_HD constexpr int emin() const { return 1 - bias; }
  MMAEMU_HD constexpr int bits() const { return 1 + exponent_bits + mantissa_bits; }
  MMAEMU_HD constexpr uint32_t sign_bit() const { return uint32_t{1} << (bits() - 1); }
  MMAEMU_HD constexpr uint32_t exponent_mask() const { return (uint32_t{1} << exponent_bits) - 1; }
  MMAEMU_HD constexpr uint32_t mantissa_mask() const { return (uint32_t{1} << mantissa_bits) - 1; }
  // Bits of +Inf where there is one.
  MMAEMU_HD constexpr uint32_t infinity() const { return exponent_mask() << mantissa_bits; }
};

MMAEMU_CONSTANT FloatFormat kFp32{23, 8, 127, true, 0x7FFFFFFFu, 0x7F7FFFFFu};
MMAEMU_CONSTANT FloatFormat kBf16{7, 8, 127, true, 0x7FFFu, 0x7F7Fu};
MMAEMU_CONSTANT FloatFormat kFp16{10, 5, 15, true, 0x7FFFu, 0x7BFFu};
MMAEMU_CONSTANT FloatFormat kE4M3{3, 4, 7, false, 0x7Fu, 0x7Eu};
MMAEMU_CONSTANT FloatFormat kE5M2{2, 5, 15, true, 0x7Fu, 0x7Bu};

enum class NumberClass : uint8_t { kFinite, kInfinite, kNan };

// A decoded number: (-1)^negative * significand * 2^(exponent - mantissa_bits), where exponent is
// e(x) of R2 (a subnormal keeps emin) and significand == 0 means zero.
struct Decoded {
  uint32_t significand;
  int exponent;
  bool negative;
  NumberClass number_class;
};

// Decodes any code of any FloatFormat.
MMAEMU_HD constexpr Decoded decode(const FloatFormat& format, uint32_t code) {
  const uint32_t field = (code >> format.mantissa_bits) & format.exponent_mask();
  const uint32_t mantissa = code & format.mantissa_mask();
  const bool negative = (code & format.sign_bit()) != 0;
  if (field == format.exponent_mask()) {
    if (format.has_infinity) {
      return {0, 0, negative, mantissa == 0 ? NumberClass::kInfinite : NumberClass::kNan};
    }
    if (mantissa == format.mantissa_mask()) return {0, 0, negative, NumberClass::kNan};
  }
  if (field == 0) return {mantissa, format.emin(), negative, NumberClass::kFinite};
  const uint32_t hidden_bit = uint32_t{1} << format.mantissa_bits;
  return {mantissa | hidden_bit, static_cast<int>(field) - format.bias, negative,
          NumberClass::kFinite};
}

// The number that a code counts as in a chain: non-finite codes are +0 (R14).
MMAEMU_HD constexpr Decoded decode_finite(const FloatFormat& format, uint32_t code) {
  const Decoded d = decode(format, code);
  return d.number_class == NumberClass::kFinite
             ? d
             : Decoded{0, format.emin(), false, NumberClass::kFinite};
}

// Checked here so that a wrong field fails to compile: 448 = 1.75 * 2^8, 57344 = 1.75 * 2^15.
static_assert(decode(kE4M3, kE4M3.max_finite).significand == 14);
static_assert(decode(kE4M3, kE4M3.max_finite).exponent == 8);
static_assert(decode(kE5M2, kE5M2.max_finite).significand == 7);
static_assert(decode(kE5M2, kE5M2.max_finite).exponent == 15);
static_assert(decode(kE4M3, 0x7F).number_class == NumberClass::kNan);
static_assert(decode(kE5M2, 0xFC).number_class == NumberClass::kInfinite);
static_assert(decode(kE4M3, 0x01).exponent == -6 && decode(kE5M2, 0x01).exponent == -14);

}  // namespace mmaemu
