// The epilogue (R16 to R19) as branch-free loops that the compiler vectorises for the target.
//
// Claim: equal to apply_epilogue for every input. Why exact: a hardware fused multiply-add in the
// IEEE environment is R17 by definition; 16-bit rounding is the integer RNE of the fp32 bits; FP8
// rounding is the same above the smallest normal number, and below it an fp32 addition to a power
// of two whose ulp is the FP8 subnormal step (one RNE rounding). Precondition: round to nearest
// even, nothing flushed (parallel_for's guard). Test: csrc/tests, tests/exhaustive.

#include <cstdint>
#include <cstring>

#include "numerics/epilogue.h"

namespace mmaemu::cpu::MMAEMU_TARGET {

inline uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}
inline float float_of(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}
inline uint32_t magnitude_of(uint32_t bits) { return bits & 0x7FFFFFFFu; }
inline bool is_nan(uint32_t bits) { return magnitude_of(bits) > kFp32.infinity(); }

// 16-bit formats. fp32 subnormals are below half of fp16's smallest number; bf16 shares fp32's
// exponents, so dropping 16 bits is its whole conversion.
inline uint16_t to_bf16(uint32_t y) {
  const uint32_t rounded = (y + 0x7FFFu + ((y >> 16) & 1)) >> 16;
  return static_cast<uint16_t>(is_nan(y) ? kBf16.canonical_nan : rounded);
}

// RNE of magnitude bits to kMantissa bits with the given bias, below the format's overflow.
template <int kMantissa, int kBias>
inline uint32_t round_magnitude(uint32_t magnitude) {
  constexpr int kDrop = kFp32.mantissa_bits - kMantissa;
  constexpr uint32_t kMinNormal = static_cast<uint32_t>(kFp32.bias - kBias + 1) << 23;
  const uint32_t rounded =
      (magnitude + ((1u << (kDrop - 1)) - 1) + ((magnitude >> kDrop) & 1)) >> kDrop;
  const uint32_t normal = rounded - (static_cast<uint32_t>(kFp32.bias - kBias) << kMantissa);
  // ulp(kStep) is the subnormal step 2^(1 - kBias - kMantissa).
  constexpr uint32_t kStep =
      static_cast<uint32_t>(kFp32.bias + 1 - kBias - kMantissa + kFp32.mantissa_bits) << 23;
  const uint32_t subnormal = bits_of(float_of(magnitude) + float_of(kStep)) - kStep;
  return magnitude < kMinNormal ? subnormal : normal;
}

inline uint16_t to_fp16(uint32_t y) {
  constexpr uint32_t kOverflow = 0x47800000u;  // 65536; 65520 and up round to it
  const uint32_t magnitude = magnitude_of(y);
  const uint32_t bounded = magnitude < kOverflow ? magnitude : kOverflow;
  const uint32_t code = round_magnitude<10, 15>(bounded) | ((y >> 16) & 0x8000u);
  return static_cast<uint16_t>(is_nan(y) ? kFp16.canonical_nan : code);
}

template <bool kIsE5M2>
inline uint8_t to_fp8(uint32_t y) {
  constexpr FloatFormat kFormat = kIsE5M2 ? kE5M2 : kE4M3;
  constexpr uint32_t kMax =
      round_to_nearest_even(kFp32, false, decode(kFormat, kFormat.max_finite).significand,
                            decode(kFormat, kFormat.max_finite).exponent - kFormat.mantissa_bits);
  const uint32_t magnitude = magnitude_of(y);
  const uint32_t bounded = magnitude < kMax ? magnitude : kMax;
  const uint32_t code =
      round_magnitude<kFormat.mantissa_bits, kFormat.bias>(bounded) | ((y >> 24) & 0x80u);
  return static_cast<uint8_t>(is_nan(y) ? kFormat.canonical_nan : code);
}

inline uint32_t scaled(uint32_t acc, float alpha) {
  return bits_of(__builtin_fmaf(float_of(acc), alpha, 0.0f));
}

template <typename Out, typename Convert>
void finish_each(const Epilogue& epilogue, const uint32_t* acc, int64_t count, void* out,
                 const Convert& convert) {
  const float alpha = float_of(epilogue.alpha_bits);
  auto* codes = static_cast<Out*>(out);
  for (int64_t i = 0; i < count; ++i) codes[i] = convert(scaled(acc[i], alpha));
}

template <bool kIsE5M2>
void finish_fp8(const Epilogue& epilogue, const uint32_t* acc, int64_t count, void* out) {
  if (!epilogue.has_scale_result) {
    finish_each<uint8_t>(epilogue, acc, count, out, to_fp8<kIsE5M2>);
    return;
  }
  const float scale_result = float_of(epilogue.scale_result_bits);
  finish_each<uint8_t>(epilogue, acc, count, out, [scale_result](uint32_t y) {
    return to_fp8<kIsE5M2>(bits_of(float_of(y) * scale_result));
  });
}

inline void finish_row(const Epilogue& epilogue, const uint32_t* acc, int64_t count, void* out) {
  const FloatFormat& format = epilogue.out_format;
  if (format.bits() == 32) {
    finish_each<uint32_t>(epilogue, acc, count, out,
                          [](uint32_t y) { return is_nan(y) ? kFp32.canonical_nan : y; });
  } else if (format.bits() == 16) {
    if (format.exponent_bits == kFp16.exponent_bits) {
      finish_each<uint16_t>(epilogue, acc, count, out, to_fp16);
    } else {
      finish_each<uint16_t>(epilogue, acc, count, out, to_bf16);
    }
  } else if (format.has_infinity) {
    finish_fp8<true>(epilogue, acc, count, out);
  } else {
    finish_fp8<false>(epilogue, acc, count, out);
  }
}

}  // namespace mmaemu::cpu::MMAEMU_TARGET
