// Four FP8 codes in the bytes of a word, decoded together. No operation carries between bytes; the
// encodings are those of cpu/packed_codes.h, which holds their bounds.
#pragma once

#include <cstdint>

#include "cpu/packed_codes.h"
#include "cuda/runtime.h"
#include "numerics/formats.h"

namespace mmaemu::cuda {

inline constexpr uint32_t kOnes = 0x01010101u;
inline constexpr uint32_t kSigns = 0x80 * kOnes;
inline constexpr uint32_t kMagnitudes = 0x7F * kOnes;

// What a line of codes holds besides finite ones.
enum SpecialFlag : uint32_t { kHasNan = 1, kHasInfinity = 2 };

// Bit 7 of each byte that holds a code above the largest finite one.
__device__ __forceinline__ uint32_t non_finite(uint32_t codes, bool is_e5m2) {
  const uint32_t to_bit_7 = 0x7F - (is_e5m2 ? kE5M2.max_finite : kE4M3.max_finite);
  return ((codes & kMagnitudes) + to_bit_7 * kOnes) & kSigns;
}

// 0xFF in each byte of which bit 7 is set.
__device__ __forceinline__ uint32_t whole_bytes(uint32_t bit_7) { return (bit_7 >> 7) * 0xFF; }

__device__ __noinline__ inline uint32_t special_flags(uint32_t codes, bool is_e5m2) {
  uint32_t flags = 0;
  const uint32_t found = non_finite(codes, is_e5m2);
  for (int i = 0; i < 4; ++i) {
    if ((found >> (8 * i) & 0x80) == 0) continue;
    const bool infinity = is_e5m2 && (codes >> (8 * i) & 0x7F) == kE5M2.max_finite + 1;
    flags |= infinity ? kHasInfinity : kHasNan;
  }
  return flags;
}

// Finite codes, taken apart.
struct DecodedWord {
  uint32_t magnitude;
  uint32_t field;    // exponent field, at least 1: a subnormal shares emin (R2)
  uint32_t nonzero;  // 0xFF or 0
  bool is_e5m2;

  __device__ DecodedWord(uint32_t codes, bool e5m2)
      : magnitude(codes & kMagnitudes), is_e5m2(e5m2) {
    const uint32_t stored = e5m2 ? magnitude >> kE5M2.mantissa_bits & kE5M2.exponent_mask() * kOnes
                                 : magnitude >> kE4M3.mantissa_bits & kE4M3.exponent_mask() * kOnes;
    const uint32_t normal = (stored + kMagnitudes) >> 7 & kOnes;
    field = stored + (kOnes - normal);
    nonzero = whole_bytes((magnitude + kMagnitudes) & kSigns);
  }

  // (exponent of the lowest set bit) + kLowBias, kLowZero for zeros.
  __device__ uint32_t low() const {
    const uint32_t hidden = is_e5m2 ? 1u << kE5M2.mantissa_bits : 1u << kE4M3.mantissa_bits;
    const uint32_t significand = (magnitude & (hidden - 1) * kOnes) | hidden * kOnes;
    const uint32_t lowest = (0x10 * kOnes - significand) & significand;  // 1, 2, 4 or 8
    const uint32_t zeros = (lowest >> 1 & 0x07 * kOnes) - (lowest >> 3 & kOnes);
    const int offset = is_e5m2 ? cpu::kLowBias - kE5M2.bias - kE5M2.mantissa_bits
                               : cpu::kLowBias - kE4M3.bias - kE4M3.mantissa_bits;
    const uint32_t low = field + zeros + static_cast<uint32_t>(offset) * kOnes;
    return (low & nonzero) | (cpu::kLowZero * kOnes & ~nonzero);
  }
};

// The value of the finite code in byte i; exact, subnormals included.
__device__ __forceinline__ float value_of(uint32_t codes, int i, bool is_e5m2) {
  const uint32_t code = codes >> (8 * i) & 0xFF;
  const int mantissa_bits = is_e5m2 ? kE5M2.mantissa_bits : kE4M3.mantissa_bits;
  const int bias = is_e5m2 ? kE5M2.bias : kE4M3.bias;
  const uint32_t bits = (code & 0x7F) << (kFp32.mantissa_bits - mantissa_bits);
  const float move_bias = __uint_as_float(static_cast<uint32_t>(2 * kFp32.bias - bias) << 23);
  const uint32_t magnitude = __float_as_uint(__fmul_rn(__uint_as_float(bits), move_bias));
  return __uint_as_float(magnitude | (code & 0x80) << 24);
}

}  // namespace mmaemu::cuda
