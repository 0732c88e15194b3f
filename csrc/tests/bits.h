// fp32 numbers and their bits.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "numerics/formats.h"

namespace mmaemu::testing {

inline uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
inline float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

// What hardware computed, with the one NaN this library returns (R19).
inline uint32_t canonical_bits(float x) { return std::isnan(x) ? kFp32.canonical_nan : bits_of(x); }

}  // namespace mmaemu::testing
