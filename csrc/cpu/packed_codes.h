// How operands look to the chain kernel: per element its value, an exponent byte and a low-bit
// byte. The encodings and the bounds that make byte arithmetic on them exact.
#pragma once

#include <cstdint>

#include "numerics/formats.h"
#include "numerics/instruction_model.h"

namespace mmaemu::cpu {

// Exponent byte: e(x) + bias, 0 for a zero. The biases of A and B add up to fp32's, so a sum of two
// bytes is the product's exponent field. A product with a zero gets a field below every nonzero
// product's and below every accumulator's (a multiple of 2^(2 emin - frac), see kMinAccumulator),
// so it never wins the maximum that matters (R3, R4).
inline constexpr int kExponentBiasA = 63;
inline constexpr int kExponentBiasB = 64;
static_assert(kExponentBiasA + kExponentBiasB == kFp32.bias);

// The widest exponents are E5M2's, -14 .. 15.
inline constexpr int kEmin = kE5M2.emin();
inline constexpr int kEmax = 15;
static_assert(kEmin + kExponentBiasA > 0, "a nonzero element's byte is not 0");
static_assert(kEmax + kExponentBiasB < kEmin + kExponentBiasA + kEmin + kExponentBiasB,
              "a zero product's field is below every nonzero product's");

// Low-bit byte: (exponent of the lowest set bit) + 16 in 0..31, 63 for a zero, and the sign in bit
// 7. Adding two bytes adds the exponents and, as bits 0..6 cannot carry, multiplies the signs.
inline constexpr int kLowBias = 16;
inline constexpr int kLowZero = 63;
inline constexpr int kLowLimit = 63;  // sums of two nonzero elements stay below, others do not
static_assert(kEmin - kE5M2.mantissa_bits + kLowBias >= 0);
static_assert(2 * (kEmax + kLowBias) < kLowLimit, "nonzero products are below the limit");
static_assert(kLowZero >= kLowLimit, "a product with a zero never counts as inexact");
static_assert(2 * kLowZero < 128, "no carry into the sign");

// The models whose chains the fp32 kernel runs exactly, by its number of products per block.
// The sum starts at 1.5 * 2^(E + kHeadroom), whose ulp is 2^(E - frac).
inline constexpr int kFrac = 13;
inline constexpr int kHeadroom = kFp32.mantissa_bits - kFrac;
inline constexpr int kMinAccumulator = 2 * kEmin - kFrac;  // exponent of the smallest one
static_assert(kEmax + kExponentBiasB < kMinAccumulator + kFp32.bias,
              "a zero product's field is below every nonzero accumulator's");

// |c| < 2^(E+1) and |product| < 2^(E+2), so the sum stays within 2^(E + kHeadroom - 1) of its start
// and never leaves the binade whose ulp is the grid.
constexpr bool sum_keeps_its_binade(int nfma) { return 4 * nfma + 2 < (1 << (kHeadroom - 1)); }

// |c| <= K * 2^(2 (kEmax + 1)) with K < 2^63: the exponent field of every start value is a byte
// below that of infinity.
inline constexpr bool start_field_is_a_byte = 63 + 2 * (kEmax + 1) + kHeadroom + kFp32.bias < 255;
static_assert(start_field_is_a_byte);

inline bool runs_in_fp32(const InstructionModel& model, int nfma) {
  return model.nfma == nfma && model.frac == kFrac && model.frac_out == kFrac && !model.late_c &&
         model.min_exp <= kMinAccumulator;
}

}  // namespace mmaemu::cpu
