// What host and device code both need: function qualifiers and the index of the leading bit.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define MMAEMU_HD __host__ __device__
#else
#define MMAEMU_HD
#endif

namespace mmaemu {

// floor(log2(x)) of x > 0.
MMAEMU_HD constexpr int floor_log2(uint64_t x) {
#if defined(__CUDA_ARCH__)
  return 63 - __clzll(static_cast<long long>(x));
#else
  return 63 - __builtin_clzll(x);
#endif
}

}  // namespace mmaemu
