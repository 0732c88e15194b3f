// The block step as the FP8 mma.sync instruction that is the model: m16n8k32, two chained blocks of
// 16 products in K order (R9), on GPUs of compute capability 8.9. On 9.0 the same instruction is
// another arithmetic.
#pragma once

#include <cstdint>

#include "cuda/byte_lanes.h"
#include "cuda/fragment.h"
#include "cuda/mma.h"

namespace mmaemu::cuda {

template <bool kIsE5M2A, bool kIsE5M2B>
struct MmaStep {
  struct Codes {
    uint32_t word[kWords];
    uint32_t padding[4];  // the eight rows of a warp's load are in different banks
  };
  template <int kRows, int kColumns>
  struct Shared {
    Codes a[kRows];
    Codes b[kColumns];
  };

  template <typename Tile>
  __device__ static void store_a(Tile& tile, int row, int word, uint32_t codes, bool) {
    tile.a[row].word[word] = codes;
  }
  template <typename Tile>
  __device__ static void store_b(Tile& tile, int column, int word, uint32_t codes, bool) {
    tile.b[column].word[word] = codes;
  }

  template <typename Tile>
  __device__ static void run(const Tile& tile, int row, int column, Fragment& c) {
    const Lane lane = Lane::own();
    uint32_t a[kRowTiles][4];
#pragma unroll
    for (int mi = 0; mi < kRowTiles; ++mi) {
      const Codes& upper = tile.a[row + 16 * mi + lane.group];
      const Codes& lower = tile.a[row + 16 * mi + lane.group + 8];
      a[mi][0] = upper.word[lane.pair];
      a[mi][1] = lower.word[lane.pair];
      a[mi][2] = upper.word[lane.pair + 4];
      a[mi][3] = lower.word[lane.pair + 4];
    }
#pragma unroll
    for (int ni = 0; ni < kColumnTiles; ++ni) {
      const Codes& codes = tile.b[column + 8 * ni + lane.group];
      const uint32_t b[2] = {codes.word[lane.pair], codes.word[lane.pair + 4]};
#pragma unroll
      for (int mi = 0; mi < kRowTiles; ++mi) {
        mma_fp8_16x8x32<kIsE5M2A, kIsE5M2B>(c.at[mi][ni], a[mi], b);
      }
    }
  }

  // The instruction truncates every block's result itself (R7).
  __device__ static void finish(Fragment&) {}
};

}  // namespace mmaemu::cuda
