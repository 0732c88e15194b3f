// The block step on fp32 lanes: the method of cpu/chain_kernel-inl.h, which has the argument for
// it, with three changes that suit a GPU.
//  1. E comes from the tensor cores, as bf16 powers of two. With 2^(kLog e) times a constant for
//     every element (0 for a zero), the sum over a group of products lies in [2^(kSpacing E'),
//     2^(kSpacing E' + log2(group))], kSpacing = 2^kLog: it is at least the largest product, which
//     every tensor core keeps whatever it truncates, and at most `group` times that. So the
//     exponent of the sum, divided by kSpacing, is E' as long as log2(group) < kSpacing. E4M3 x
//     E4M3 has 29 exponents, which fit the 254 of fp32 with kSpacing = 8, and a whole block is one
//     group; with E5M2 there are up to 59, kSpacing = 4, and groups of 8 whose maximum is taken.
//  2. A byte sum that may carry into bit 7 but not out of it compares four products at once: bit 7
//     of low(a) + low(b) + 128 - limit is clear exactly for the products off the grid, and a dot
//     product with ones counts those of them that are negative.
//  3. Rounding modes are the instructions' own.
// Tests: csrc/tests/test_cuda_kernels.cc runs this text against the portable kernel.
#pragma once

#include <cstdint>

#include "cpu/packed_codes.h"
#include "cuda/byte_lanes.h"
#include "cuda/fragment.h"
#include "cuda/mma.h"
#include "numerics/formats.h"

namespace mmaemu::cuda {

template <int kNfma, bool kHasE5M2>
struct IeeeStep {
  static_assert(kStep % kNfma == 0 && cpu::sum_keeps_its_binade(kNfma));
  static constexpr int kLog = kHasE5M2 ? 2 : 3;
  static constexpr int kSpacing = 1 << kLog;
  static constexpr int kGroup = kHasE5M2 ? 8 : kNfma;
  static_assert(kGroup < 1 << kSpacing, "the sum of a group stays below the next exponent");

  // bf16 exponent fields: kSpacing e(a) + kBiasA times kSpacing e(b) + kBiasB is a product's, whose
  // upper bits are e(a) + e(b) + kSumBias.
  static constexpr int kEmax = kHasE5M2 ? cpu::kEmax : kE4M3.max_finite / 8 - kE4M3.bias;
  static constexpr int kEmin = kHasE5M2 ? kE5M2.emin() : kE4M3.emin();
  static constexpr int kBiasA = kHasE5M2 ? 120 : 112;
  static constexpr int kBiasB = kHasE5M2 ? 123 : 119;
  static constexpr int kSumBias = (kBiasA + kBiasB - kFp32.bias) / kSpacing;
  static_assert((kBiasA + kBiasB - kFp32.bias) % kSpacing == 0);
  static_assert(kSpacing * kEmin + kBiasA > 0 && kSpacing * kEmax + kBiasB < 255);
  static_assert(2 * kEmin + kSumBias > 0, "a nonzero sum is normal");
  // E of a block without nonzero products. It may be above c's exponent and changes nothing: c is a
  // multiple of the smallest product, which is on the grid, and has too few bits for R7 to cut.
  static constexpr int kNoProduct = -kSumBias;
  static constexpr int kLowestBit = 2 * (kEmin - (kHasE5M2 ? 2 : 3));
  static_assert(kNoProduct - cpu::kFrac <= kLowestBit);
  static_assert(kSpacing * (2 * kEmax + kSumBias + 1) <= 255, "and finite");

  // Lines are padded so that the eight rows of a warp's load are in different banks.
  struct Line {
    float value[kStep + 4];
  };
  struct Bytes {
    uint32_t low[kWords];       // (exponent of the lowest set bit) + kLowBias; kLowZero
    uint32_t sign[kWords];      // bit 7
    uint32_t exponent[kWords];  // bf16 exponent field; 0 for a zero
    uint32_t padding[4];
  };
  template <int kRows, int kColumns>
  struct Shared {
    Line values_a[kRows];
    Line values_b[kColumns];
    Bytes bytes_a[kRows];
    Bytes bytes_b[kColumns];
  };

  // Four finite codes of one line, at word `word` of the step.
  template <typename Tile>
  __device__ static void store_a(Tile& tile, int row, int word, uint32_t codes, bool is_e5m2) {
    store(tile.values_a[row], tile.bytes_a[row], word, codes, is_e5m2, kBiasA);
  }
  template <typename Tile>
  __device__ static void store_b(Tile& tile, int column, int word, uint32_t codes, bool is_e5m2) {
    store(tile.values_b[column], tile.bytes_b[column], word, codes, is_e5m2, kBiasB);
  }

  // kStep own elements of the chain c, for the warp whose tile starts at (row, column).
  template <typename Tile>
  __device__ static void run(const Tile& tile, int row, int column, Fragment& c) {
#pragma unroll 1
    for (int k = 0; k < kStep; k += kNfma) {
      const Fragment base = start(tile, row, column, k, c);
      count_inexact_negatives(tile, row, column, k, base, c);
      multiply_add(tile, row, column, k, c);
      for_each_output([&](int mi, int ni, int e) {
        float& x = c.at[mi][ni][e];
        x = __fsub_rn(x, base.at[mi][ni][e]);  // exact
      });
    }
  }

  // R7 for a chain's last block, as finish_chain in cpu/tile_kernel-inl.h.
  __device__ static void finish(Fragment& c) {
    constexpr uint32_t kKeep = ~((1u << (kFp32.mantissa_bits - cpu::kFrac)) - 1);
    for_each_output([&](int mi, int ni, int e) {
      float& x = c.at[mi][ni][e];
      x = __uint_as_float(__float_as_uint(x) & kKeep);
    });
  }

 private:
  __device__ static void store(Line& line, Bytes& bytes, int word, uint32_t codes, bool is_e5m2,
                               int bias) {
    const DecodedWord decoded(codes, is_e5m2);
    const int format_bias = is_e5m2 ? kE5M2.bias : kE4M3.bias;
    const uint32_t offset = static_cast<uint32_t>(bias - (format_bias << kLog));
    bytes.low[word] = decoded.low();
    bytes.sign[word] = codes & kSigns;
    bytes.exponent[word] = ((decoded.field << kLog) + offset * kOnes) & decoded.nonzero;
    float4 values;
    values.x = value_of(codes, 0, is_e5m2);
    values.y = value_of(codes, 1, is_e5m2);
    values.z = value_of(codes, 2, is_e5m2);
    values.w = value_of(codes, 3, is_e5m2);
    *reinterpret_cast<float4*>(&line.value[4 * word]) = values;
  }

  // Bytes 2 half and 2 half + 1 as the exponent fields of two bf16 numbers.
  __device__ static uint32_t bf16_pair(uint32_t word, int half) {
    return __byte_perm(word, 0, half == 0 ? 0x4140 : 0x4342) << 7;
  }

  // Sums of powers of two, 16 elements of K at a time: every lane takes four of them, in the same
  // order for a and b. Their order does not matter.
  template <typename Tile>
  __device__ static void sum_powers(const Tile& tile, int row, int column, int k, Fragment& sums) {
    const Lane lane = Lane::own();
    clear(sums);
#pragma unroll
    for (int part = 0; part < kNfma / 16; ++part) {
      const int word = k / 4 + 4 * part + lane.pair;
      uint32_t a[kRowTiles][2];
#pragma unroll
      for (int mi = 0; mi < kRowTiles; ++mi) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          a[mi][r] = tile.bytes_a[row + lane.row(mi, 2 * r)].exponent[word];
        }
      }
#pragma unroll
      for (int ni = 0; ni < kColumnTiles; ++ni) {
        const uint32_t b = tile.bytes_b[column + 8 * ni + lane.group].exponent[word];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int mi = 0; mi < kRowTiles; ++mi) {
            const uint32_t rows[2] = {bf16_pair(a[mi][0], half), bf16_pair(a[mi][1], half)};
            add_group(sums.at[mi][ni], rows, bf16_pair(b, half));
          }
        }
      }
    }
  }
  __device__ static void add_group(float (&sums)[4], const uint32_t (&a)[2], uint32_t b) {
    if constexpr (kGroup == 8) {
      float group[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      mma_bf16_16x8x8(group, a, b);
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[e] = fmaxf(sums[e], group[e]);
    } else {
      mma_bf16_16x8x8(sums, a, b);
    }
  }

  // Takes c into E, returns 1.5 * 2^(E + kHeadroom) and adds it to the truncated c.
  template <typename Tile>
  __device__ static Fragment start(const Tile& tile, int row, int column, int k, Fragment& c) {
    Fragment base;
    sum_powers(tile, row, column, k, base);
    for_each_output([&](int mi, int ni, int e) {
      const uint32_t sum = __float_as_uint(base.at[mi][ni][e]);
      // As an fp32 exponent field; without a nonzero product, that of kNoProduct.
      const uint32_t products = ((sum >> (23 + kLog)) + (kFp32.bias - kSumBias)) << 23;
      float& x = c.at[mi][ni][e];
      const uint32_t own = __float_as_uint(x) & 0x7F800000u;
      constexpr uint32_t kUp = (uint32_t{cpu::kHeadroom} << 23) | 0x400000u;
      const float start = __uint_as_float((products > own ? products : own) + kUp);
      base.at[mi][ni][e] = start;
      // start + trunc(c): down for c >= 0, up for c < 0.
      const float down = __fadd_rz(start, x);
      const float up = __fadd_ru(start, x);
      x = x < 0.0f ? up : down;
    });
    return base;
  }

  // 128 - limit in every byte, for the grid that belongs to `base`.
  __device__ static uint32_t limit_word(float base) {
    constexpr int kOffset = kFp32.bias + cpu::kFrac - 2 * cpu::kLowBias + cpu::kHeadroom;
    const int above = static_cast<int>(__float_as_uint(base) >> 23) - kOffset;
    const int limit = above < 0 ? 0 : above > cpu::kLowLimit ? cpu::kLowLimit : above;
    return static_cast<uint32_t>(128 - limit) * kOnes;
  }
  static_assert(2 * cpu::kLowZero + 128 < 256, "no carry out of a byte");

  template <typename Tile>
  __device__ static void count_inexact_negatives(const Tile& tile, int row, int column, int k,
                                                 const Fragment& base, Fragment& sum) {
    constexpr int kBlockWords = kNfma / 4;
    const Lane lane = Lane::own();
#pragma unroll
    for (int mi = 0; mi < kRowTiles; ++mi) {
      uint32_t low[2][kBlockWords];
      uint32_t sign[2][kBlockWords];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const Bytes& bytes = tile.bytes_a[row + lane.row(mi, 2 * r)];
        load_words(bytes.low + k / 4, low[r]);
        load_words(bytes.sign + k / 4, sign[r]);
      }
#pragma unroll
      for (int ni = 0; ni < kColumnTiles; ++ni) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const Bytes& bytes = tile.bytes_b[column + lane.column(ni, j)];
          uint32_t low_b[kBlockWords];
          uint32_t sign_b[kBlockWords];
          load_words(bytes.low + k / 4, low_b);
          load_words(bytes.sign + k / 4, sign_b);
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const uint32_t limit = limit_word(base.at[mi][ni][2 * r + j]);
            uint32_t count = 0;  // times 128
#pragma unroll
            for (int w = 0; w < kBlockWords; ++w) {
              const uint32_t on_grid = low[r][w] + low_b[w] + limit;
              count = __dp4a(~on_grid & (sign[r][w] ^ sign_b[w]), kOnes, count);
            }
            float& x = sum.at[mi][ni][2 * r + j];
            x = __uint_as_float(__float_as_uint(x) + (count >> 7));
          }
        }
      }
    }
  }
  template <int kCount>
  __device__ static void load_words(const uint32_t* from, uint32_t (&to)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const uint4 x = *reinterpret_cast<const uint4*>(from + i);
      to[i] = x.x;
      to[i + 1] = x.y;
      to[i + 2] = x.z;
      to[i + 3] = x.w;
    }
  }

  template <typename Tile>
  __device__ static void multiply_add(const Tile& tile, int row, int column, int k, Fragment& sum) {
    const Lane lane = Lane::own();
#pragma unroll 2
    for (int i = k; i < k + kNfma; i += 4) {
      float4 a[kRowTiles][2];
#pragma unroll
      for (int mi = 0; mi < kRowTiles; ++mi) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          a[mi][r] = load_values(tile.values_a[row + lane.row(mi, 2 * r)], i);
        }
      }
#pragma unroll
      for (int ni = 0; ni < kColumnTiles; ++ni) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const float4 b = load_values(tile.values_b[column + lane.column(ni, j)], i);
#pragma unroll
          for (int mi = 0; mi < kRowTiles; ++mi) {
#pragma unroll
            for (int r = 0; r < 2; ++r) {
              float& x = sum.at[mi][ni][2 * r + j];
              x = __fmaf_rz(a[mi][r].x, b.x, x);
              x = __fmaf_rz(a[mi][r].y, b.y, x);
              x = __fmaf_rz(a[mi][r].z, b.z, x);
              x = __fmaf_rz(a[mi][r].w, b.w, x);
            }
          }
        }
      }
    }
  }
  __device__ static float4 load_values(const Line& line, int k) {
    return *reinterpret_cast<const float4*>(&line.value[k]);
  }
};

}  // namespace mmaemu::cuda
