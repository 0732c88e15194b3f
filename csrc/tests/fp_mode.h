// Floating-point modes a caller may be in, and how to tell the IEEE one.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/ieee_env.h"
#include "tests/bits.h"

namespace mmaemu::testing {

// The control word that XLA:CPU's threads have: subnormals flushed, in and out (on AArch64 one bit,
// FZ, does both).
#if defined(__x86_64__)
inline constexpr uint64_t kXlaFpControl = 0x9FE2;
inline constexpr uint64_t kFlushMask = 0x8040;  // FTZ and DAZ
#elif defined(__aarch64__)
inline constexpr uint64_t kFlushMask = uint64_t{1} << 24;
inline constexpr uint64_t kXlaFpControl = cpu::kIeeeControl | kFlushMask;
#else
inline constexpr uint64_t kFlushMask = 0;
inline constexpr uint64_t kXlaFpControl = cpu::kIeeeControl;
#endif

// What a caller's control word may be.
inline std::vector<uint64_t> caller_modes() {
  std::vector<uint64_t> modes{cpu::kIeeeControl, cpu::kTowardZeroControl,
                              cpu::kIeeeControl | kFlushMask, cpu::kTowardZeroControl | kFlushMask,
                              kXlaFpControl};
#if defined(__x86_64__)
  // Rounding down and up; flushing outputs alone, and inputs alone.
  for (const uint64_t mode : {0x3F80u, 0x5F80u, 0xDFC0u, 0x9F80u, 0x1FC0u}) modes.push_back(mode);
#elif defined(__aarch64__)
  constexpr uint64_t kUp = uint64_t{1} << 22;
  constexpr uint64_t kDown = uint64_t{2} << 22;
  constexpr uint64_t kDefaultNan = uint64_t{1} << 25;
  constexpr uint64_t kHalf = uint64_t{1} << 26 | uint64_t{1} << 19;  // AHP and FZ16: fp16 alone
  constexpr uint64_t kAlternate = 7;  // FIZ, AH, NEP: alternate handling, from Armv8.7 on
  for (const uint64_t mode : {kUp, kDown, kUp | kFlushMask, kDown | kFlushMask, kDefaultNan, kHalf,
                              kAlternate, kUp | kAlternate}) {
    const cpu::ScopedFpControl kept(mode);
    modes.push_back(cpu::read_fp_control());  // a processor ignores bits that it does not have
  }
#endif
  return modes;
}

// Subnormals are kept, in and out, and an invalid operation is no trap.
inline bool keeps_subnormals_here() {
  const volatile float tiny = 0x1p-130f;
  const volatile float zero = 0.0f;
  const volatile float invalid = zero / zero;
  const volatile float small = tiny * 0.5f;
  const volatile float large = tiny * 0x1p30f;
  return invalid != invalid && bits_of(small) == 0x00040000u && large == 0x1p-100f;
}

// 1 + fraction and its negative, rounded here.
inline bool sums_are_here(float fraction, float rounded) {
  const volatile float one = 1.0f;
  const volatile float addend = fraction;
  const volatile float up = one + addend;
  const volatile float down = -one - addend;
  return up == rounded && down == -rounded;
}

// Rounds to nearest even and keeps subnormals, in and out.
inline bool is_ieee_here() {
  return keeps_subnormals_here() && sums_are_here(0x1p-24f, 1.0f) &&
         sums_are_here(0x1.8p-24f, 1.0f + 0x1p-23f);
}

// Rounds toward zero and keeps subnormals, in and out.
inline bool is_toward_zero_here() {
  return keeps_subnormals_here() && sums_are_here(0x1.8p-24f, 1.0f);
}

}  // namespace mmaemu::testing
