// Which outputs a thread holds: those of mma.sync's m16n8 accumulators, 2 x 2 of them per warp.
// With 16 outputs the accumulators of a chain, a split, a slot and the whole fit 128 registers.
#pragma once

#include <cstdint>

#include "cuda/runtime.h"

namespace mmaemu::cuda {

inline constexpr int kRowTiles = 2;
inline constexpr int kColumnTiles = 2;
inline constexpr int kWarpRows = 16 * kRowTiles;
inline constexpr int kWarpColumns = 8 * kColumnTiles;
inline constexpr int kStep = 32;  // elements of K that a block of threads takes at a time
inline constexpr int kWords = kStep / 4;

// Element e of accumulator (mi, ni): row 16 mi + group + 8 (e / 2), column 8 ni + 2 pair + e % 2.
struct Fragment {
  float at[kRowTiles][kColumnTiles][4];
};

// A thread's place in its warp.
struct Lane {
  int group;  // 0..7
  int pair;   // 0..3

  __device__ static Lane own() {
    return {static_cast<int>(threadIdx.x % 32 / 4), static_cast<int>(threadIdx.x % 4)};
  }
  __device__ int row(int mi, int e) const { return 16 * mi + group + 8 * (e / 2); }
  __device__ int column(int ni, int e) const { return 8 * ni + 2 * pair + e % 2; }
};

template <typename Each>
__device__ __forceinline__ void for_each_output(const Each& each) {
#pragma unroll
  for (int mi = 0; mi < kRowTiles; ++mi) {
#pragma unroll
    for (int ni = 0; ni < kColumnTiles; ++ni) {
#pragma unroll
      for (int e = 0; e < 4; ++e) each(mi, ni, e);
    }
  }
}

__device__ __forceinline__ void clear(Fragment& x) {
  for_each_output([&](int mi, int ni, int e) { x.at[mi][ni][e] = 0.0f; });
}

// RN32(sum + x) (R11 to R13).
__device__ __forceinline__ void add(const Fragment& x, Fragment& sum) {
  for_each_output([&](int mi, int ni, int e) {
    sum.at[mi][ni][e] = __fadd_rn(sum.at[mi][ni][e], x.at[mi][ni][e]);
  });
}

}  // namespace mmaemu::cuda
