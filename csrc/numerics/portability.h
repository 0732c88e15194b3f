// What both host and device code need: function qualifiers and the index of the leading bit.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define MMAEMU_HD __host__ __device__
#else
#define MMAEMU_HD
#endif

// A constant whose address device code may take (member functions, const references).
#if defined(__CUDA_ARCH__)
#define MMAEMU_CONSTANT static __device__ constexpr
#else
#define MMAEMU_CONSTANT inline constexpr
#endif

namespace mmaemu {

// floor(log2(x)) of x > 0. CUDA's intrinsic is not constexpr, so device code counts by halving
// where the compiler evaluates it (the static_asserts of these headers).
MMAEMU_HD constexpr int floor_log2(uint64_t x) {
#if defined(__CUDA_ARCH__)
  if (!__builtin_is_constant_evaluated()) return 63 - __clzll(static_cast<long long>(x));
  int result = 0;
  for (int step = 32; step > 0; step /= 2) {
    if ((x >> step) == 0) continue;
    x >>= step;
    result += step;
  }
  return result;
#else
  return 63 - __builtin_clzll(x);
#endif
}

}  // namespace mmaemu
