// The epilogue (R16 to R19): floating-point steps on lanes, integer steps as branch-free loops that
// the compiler vectorises for the target (with -frounding-math it leaves floating-point ones
// alone).
//
// Claim: equal to apply_epilogue for every input. Why exact: a hardware fused multiply-add in the
// IEEE environment is R17 by definition; 16-bit rounding is the integer RNE of the fp32 bits; FP8
// rounding is the same above the smallest normal number, and below it an fp32 addition to a power
// of two whose ulp is the FP8 subnormal step (one RNE rounding). Precondition: round to nearest
// even, nothing flushed (parallel_for's guard). Test: csrc/tests, tests/exhaustive.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "numerics/epilogue.h"

namespace mmaemu::cpu::MMAEMU_TARGET {

inline uint32_t magnitude_of(uint32_t bits) { return bits & 0x7FFFFFFFu; }
inline Lanes::Floats as_floats(uint32_t bits) { return Lanes::floats(Lanes::broadcast(bits)); }
inline bool is_nan(uint32_t bits) { return magnitude_of(bits) > kFp32.infinity(); }

// 16-bit formats. fp32 subnormals are below half of fp16's smallest number; bf16 shares fp32's
// exponents, so dropping 16 bits is its whole conversion.
inline uint16_t to_bf16(uint32_t y) {
  const uint32_t rounded = (y + 0x7FFFu + ((y >> 16) & 1)) >> 16;
  return static_cast<uint16_t>(is_nan(y) ? kBf16.canonical_nan : rounded);
}

// The fp32 bits of the power of two whose ulp is the subnormal step 2^(1 - kBias - kMantissa).
constexpr uint32_t subnormal_step(int mantissa, int bias) {
  return static_cast<uint32_t>(kFp32.bias + 1 - bias - mantissa + kFp32.mantissa_bits) << 23;
}

// RNE of magnitude bits to kMantissa bits with the given bias, below the format's overflow.
// `stepped` are the bits of RN32(magnitude + subnormal_step).
template <int kMantissa, int kBias>
inline uint32_t round_magnitude(uint32_t magnitude, uint32_t stepped) {
  constexpr int kDrop = kFp32.mantissa_bits - kMantissa;
  constexpr uint32_t kMinNormal = static_cast<uint32_t>(kFp32.bias - kBias + 1) << 23;
  const uint32_t rounded =
      (magnitude + ((1u << (kDrop - 1)) - 1) + ((magnitude >> kDrop) & 1)) >> kDrop;
  const uint32_t normal = rounded - (static_cast<uint32_t>(kFp32.bias - kBias) << kMantissa);
  return magnitude < kMinNormal ? stepped - subnormal_step(kMantissa, kBias) : normal;
}

inline uint16_t to_fp16(uint32_t y, uint32_t stepped) {
  constexpr uint32_t kOverflow = 0x47800000u;  // 65536; 65520 and up round to it
  const uint32_t magnitude = magnitude_of(y);
  const uint32_t bounded = magnitude < kOverflow ? magnitude : kOverflow;
  const uint32_t code = round_magnitude<10, 15>(bounded, stepped) | ((y >> 16) & 0x8000u);
  return static_cast<uint16_t>(is_nan(y) ? kFp16.canonical_nan : code);
}

template <bool kIsE5M2>
inline uint8_t to_fp8(uint32_t y, uint32_t stepped) {
  constexpr FloatFormat kFormat = kIsE5M2 ? kE5M2 : kE4M3;
  constexpr uint32_t kMax =
      round_to_nearest_even(kFp32, false, decode(kFormat, kFormat.max_finite).significand,
                            decode(kFormat, kFormat.max_finite).exponent - kFormat.mantissa_bits);
  const uint32_t magnitude = magnitude_of(y);
  const uint32_t bounded = magnitude < kMax ? magnitude : kMax;
  const uint32_t code =
      round_magnitude<kFormat.mantissa_bits, kFormat.bias>(bounded, stepped) | ((y >> 24) & 0x80u);
  return static_cast<uint8_t>(is_nan(y) ? kFormat.canonical_nan : code);
}

// Accumulators finished together; a multiple of every target's vector.
inline constexpr int kFinished = 64;
static_assert(kFinished % Lanes::kFloats == 0);

// What the integer steps start from: fp32 results, and their magnitudes plus a subnormal step.
struct ScaledStretch {
  alignas(64) uint32_t y[kFinished];
  alignas(64) uint32_t stepped[kFinished];
};

// R17, then R18's RN32(y * scale_result): a fused addition of -0 changes no product.
inline void scale(const Epilogue& epilogue, ScaledStretch& stretch) {
  constexpr uint32_t kMinusZero = 0x80000000u;
  for (int i = 0; i < kFinished; i += Lanes::kFloats) {
    Lanes::Floats y = Lanes::multiply_add_nearest(Lanes::floats(Lanes::load(stretch.y + i)),
                                                  as_floats(epilogue.alpha_bits), as_floats(0));
    if (epilogue.has_scale_result && epilogue.out_format.bits() == 8) {
      y = Lanes::multiply_add_nearest(y, as_floats(epilogue.scale_result_bits),
                                      as_floats(kMinusZero));
    }
    Lanes::store(stretch.y + i, Lanes::bits(y));
  }
}

inline void add_step(uint32_t step, ScaledStretch& stretch) {
  for (int i = 0; i < kFinished; i += Lanes::kFloats) {
    const Lanes::Words magnitude =
        Lanes::and_(Lanes::load(stretch.y + i), Lanes::broadcast(0x7FFFFFFFu));
    Lanes::store(stretch.stepped + i,
                 Lanes::bits(Lanes::add_nearest(Lanes::floats(magnitude), as_floats(step))));
  }
}

template <typename Out, uint32_t kStep, typename Convert>
void finish_each(const Epilogue& epilogue, const uint32_t* acc, int64_t count, void* out,
                 const Convert& convert) {
  ScaledStretch stretch{};
  for (int64_t begin = 0; begin < count; begin += kFinished) {
    const int64_t length = std::min<int64_t>(kFinished, count - begin);
    std::memcpy(stretch.y, acc + begin, static_cast<size_t>(length) * sizeof(uint32_t));
    scale(epilogue, stretch);
    if constexpr (kStep != 0) add_step(kStep, stretch);
    Out codes[kFinished];
    for (int i = 0; i < kFinished; ++i) codes[i] = convert(stretch.y[i], stretch.stepped[i]);
    std::memcpy(static_cast<Out*>(out) + begin, codes, static_cast<size_t>(length) * sizeof(Out));
  }
}

template <bool kIsE5M2>
void finish_fp8(const Epilogue& epilogue, const uint32_t* acc, int64_t count, void* out) {
  constexpr FloatFormat kFormat = kIsE5M2 ? kE5M2 : kE4M3;
  finish_each<uint8_t, subnormal_step(kFormat.mantissa_bits, kFormat.bias)>(epilogue, acc, count,
                                                                            out, to_fp8<kIsE5M2>);
}

inline void finish_row(const Epilogue& epilogue, const uint32_t* acc, int64_t count, void* out) {
  const FloatFormat& format = epilogue.out_format;
  if (format.bits() == 32) {
    finish_each<uint32_t, 0>(epilogue, acc, count, out, [](uint32_t y, uint32_t) {
      return is_nan(y) ? kFp32.canonical_nan : y;
    });
  } else if (format.bits() == 16) {
    if (format.exponent_bits == kFp16.exponent_bits) {
      finish_each<uint16_t, subnormal_step(10, 15)>(epilogue, acc, count, out, to_fp16);
    } else {
      finish_each<uint16_t, 0>(epilogue, acc, count, out,
                               [](uint32_t y, uint32_t) { return to_bf16(y); });
    }
  } else if (format.has_infinity) {
    finish_fp8<true>(epilogue, acc, count, out);
  } else {
    finish_fp8<false>(epilogue, acc, count, out);
  }
}

}  // namespace mmaemu::cpu::MMAEMU_TARGET
