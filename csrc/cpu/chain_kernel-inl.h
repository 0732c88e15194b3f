// The chain on fp32 lanes, written once over Lanes. No include guard beyond the target's namespace:
// each target_*.cc includes it with its own MMAEMU_TARGET and instruction-set flags.
//
// Claim: with E the block's alignment exponent (R4), the loop below returns exactly R3 to R7.
// Why exact:
//  1. Values of FP8 codes are fp32 numbers and a fused multiply-add sees the exact product (R3).
//  2. E: a byte addition gives each product's exponent field, a byte maximum their largest, and one
//     more maximum takes c's exponent field in (packed_codes.h: zeros never win).
//  3. The sum starts at s0 = 1.5 * 2^(E + kHeadroom) and stays in that binade
//     (sum_keeps_its_binade), whose ulp is the grid 2^(E - frac). It is positive, so a fused
//     multiply-add rounding toward zero adds floor(product) on that grid.
//  4. R5 truncates toward zero: the same as floor, plus one grid unit for every negative product
//     that is not on the grid. A product is on the grid exactly if its lowest set bit is, so these
//     are counted in bytes, and the count is added to the sum as that many ulps.
//  5. s - s0 is a multiple of the grid below 2^(E + kHeadroom - 1), so it is exact (R6).
//  6. R7's truncation to 2^(e - frac) is left to the next block: it aligns c to 2^(E' - frac) with
//     E' >= e, and truncating twice toward zero on nested grids is truncating once on the coarser
//     one; E' needs only c's exponent field, which truncation does not change. The chain's end
//     truncates what is left (finish_chain in tile_kernel-inl.h).
// Precondition: runs_in_fp32(model, kNfma); subnormals not flushed; codes finite.
// Cost per 16 products (one AVX-512 vector of columns): 1 multiply-add, 0.5 operations for E, 0.75
// for the count, and about 15 per block start and end.
// Test: the agreement matrix (tests/test_agreement.py) and csrc/tests.

#include <cstdint>

#include "cpu/packed_codes.h"

namespace mmaemu::cpu::MMAEMU_TARGET {

// Columns per panel: byte 4 j + q of a byte vector belongs to lane j of float vector q.
inline constexpr int kPanel = 4 * Lanes::kFloats;

// One panel of packed B over the k of a segment.
struct PackedB {
  const float* values;      // [k][4][kFloats]
  const uint8_t* exponent;  // [k][kPanel]
  const uint8_t* low;       // [k][kPanel]
};

// Rows of packed A; bytes are repeated four times so that one dword broadcast fills the vector. The
// elements of a row are in the order of position_of.
struct PackedA {
  const float* values;       // [row][stride]
  const uint32_t* exponent;  // [row][stride]
  const uint32_t* low;       // [row][stride]
  int64_t stride;
};

// Where element k of a packed row is: kPanel codes are decoded together, so element 4 j + q of them
// comes to lane j of vector q, as the columns of a panel do.
constexpr int64_t position_of(int64_t k) {
  return k - k % kPanel + k % 4 * Lanes::kFloats + k % kPanel / 4;
}

// Where element 4 j + p of a block is, counted from its first: position_of, also of a block of
// several times kPanel elements.
constexpr int64_t position_in_block(int64_t j, int64_t p) {
  return j / Lanes::kFloats * kPanel + p * Lanes::kFloats + j % Lanes::kFloats;
}

// The byte of column 4 j + q as an fp32 exponent field in lane j of vector q, and back.
template <int Q>
Lanes::Words exponent_field(Lanes::Words bytes) {
  const Lanes::Words mask = Lanes::broadcast(0x7F800000u);
  if constexpr (Q == 3) return Lanes::and_(Lanes::template shift_right<1>(bytes), mask);
  if constexpr (Q != 3) return Lanes::and_(Lanes::template shift_left<23 - 8 * Q>(bytes), mask);
}
template <int Q>
Lanes::Words exponent_byte(Lanes::Words field) {
  if constexpr (Q == 3) return Lanes::template shift_left<1>(field);
  if constexpr (Q != 3) return Lanes::template shift_right<23 - 8 * Q>(field);
}
// The count in the byte of column 4 j + q as a dword in lane j of vector q.
template <int Q>
Lanes::Words count_word(Lanes::Words bytes) {
  if constexpr (Q == 3) return Lanes::template shift_right<24>(bytes);
  if constexpr (Q != 3) {
    constexpr uint8_t kNone = 0x80;
    static constexpr uint8_t kPattern[16] = {Q,      kNone, kNone, kNone, Q + 4, kNone,
                                             kNone,  kNone, Q + 8, kNone, kNone, kNone,
                                             Q + 12, kNone, kNone, kNone};
    return Lanes::lookup_bytes(bytes, Lanes::repeat_part(kPattern));
  }
}

// The start value 1.5 * 2^(E + kHeadroom) from E's exponent field.
inline Lanes::Floats start_value(Lanes::Words field) {
  constexpr uint32_t kUp = (uint32_t{kHeadroom} << 23) | 0x400000u;
  return Lanes::floats(Lanes::add_words(field, Lanes::broadcast(kUp)));
}

// A low-bit byte (sign in bit 7) below this, as signed bytes: negative and not on the grid.
inline Lanes::Words inexact_negative_limit(Lanes::Words exponent) {
  constexpr uint32_t kGridOffset = kFp32.bias + kFrac - 2 * kLowBias;
  const Lanes::Words above_grid =
      Lanes::subtract_bytes_saturating(exponent, Lanes::broadcast(0x01010101u * kGridOffset));
  return Lanes::or_(Lanes::min_bytes(above_grid, Lanes::broadcast(0x01010101u * kLowLimit)),
                    Lanes::broadcast(0x80808080u));
}

// One block of kNfma products for kRows rows and one panel, on the chain state c [row][kPanel].
template <int kNfma, int kRows>
class Block {
  static_assert(sum_keeps_its_binade(kNfma));
  static_assert(kNfma < 256, "the byte counts do not wrap");
  using Words = Lanes::Words;
  using Floats = Lanes::Floats;

 public:
  static void run(const PackedA& a, const PackedB& b, int64_t k, float* c) {
    Words exponent[kRows];
    largest_exponents(a, b, k, exponent);
    Floats sum[kRows][4];
    Floats base[kRows][4];
    for (int r = 0; r < kRows; ++r) {
      start(exponent[r], c + r * kPanel, sum[r], base[r]);
    }
    Words counts[kRows];
    count_inexact_negatives(a, b, k, exponent, counts);
    multiply_add(a, b, k, sum);
    for (int r = 0; r < kRows; ++r) {
      finish(base[r], counts[r], sum[r], c + r * kPanel);
    }
  }

 private:
  static void largest_exponents(const PackedA& a, const PackedB& b, int64_t k,
                                Words (&largest)[kRows]) {
    const int64_t first = position_of(k);
    for (int r = 0; r < kRows; ++r) largest[r] = Lanes::zero();
    for (int j = 0; j < kNfma / 4; ++j) {
#pragma GCC unroll 4
      for (int p = 0; p < 4; ++p) {
        const int64_t i = 4 * j + p;
        const int64_t at = position_in_block(j, p);
        const Words column = Lanes::load(b.exponent + (k + i) * kPanel);
        for (int r = 0; r < kRows; ++r) {
          const Words row = Lanes::broadcast(a.exponent[r * a.stride + first + at]);
          largest[r] = Lanes::max_bytes(largest[r], Lanes::add_bytes(row, column));
        }
      }
    }
  }

  // Takes c into E, returns E's bytes, and starts the sums with the truncated c.
  static void start(Words& exponent, const float* c, Floats (&sum)[4], Floats (&base)[4]) {
    const Words bytes = exponent;
    exponent = Lanes::zero();
    start_one<0>(bytes, exponent, c, sum, base);
    start_one<1>(bytes, exponent, c, sum, base);
    start_one<2>(bytes, exponent, c, sum, base);
    start_one<3>(bytes, exponent, c, sum, base);
  }
  template <int Q>
  static void start_one(Words bytes, Words& exponent, const float* c, Floats (&sum)[4],
                        Floats (&base)[4]) {
    const Floats accumulator = Lanes::load_floats(c + Q * Lanes::kFloats);
    const Words own = Lanes::and_(Lanes::bits(accumulator), Lanes::broadcast(0x7F800000u));
    const Words field = Lanes::max_words(exponent_field<Q>(bytes), own);
    exponent = Lanes::or_(exponent, exponent_byte<Q>(field));
    base[Q] = start_value(field);
    sum[Q] = Lanes::add_truncated(base[Q], accumulator);
  }

  static void count_inexact_negatives(const PackedA& a, const PackedB& b, int64_t k,
                                      const Words (&exponent)[kRows], Words (&counts)[kRows]) {
    const int64_t first = position_of(k);
    Words limit[kRows];
    for (int r = 0; r < kRows; ++r) {
      limit[r] = inexact_negative_limit(exponent[r]);
      counts[r] = Lanes::zero();
    }
    for (int j = 0; j < kNfma / 4; ++j) {
#pragma GCC unroll 4
      for (int p = 0; p < 4; ++p) {
        const int64_t i = 4 * j + p;
        const int64_t at = position_in_block(j, p);
        const Words column = Lanes::load(b.low + (k + i) * kPanel);
        for (int r = 0; r < kRows; ++r) {
          const Words row = Lanes::broadcast(a.low[r * a.stride + first + at]);
          counts[r] = Lanes::count_less(counts[r], Lanes::add_bytes(row, column), limit[r]);
        }
      }
    }
  }

  static void multiply_add(const PackedA& a, const PackedB& b, int64_t k, Floats (&sum)[kRows][4]) {
    const int64_t first = position_of(k);
    for (int j = 0; j < kNfma / 4; ++j) {
#pragma GCC unroll 4
      for (int p = 0; p < 4; ++p) {
        const int64_t i = 4 * j + p;
        const int64_t at = position_in_block(j, p);
        Floats column[4];
        for (int q = 0; q < 4; ++q) {
          column[q] = Lanes::load_floats(b.values + (k + i) * kPanel + q * Lanes::kFloats);
        }
        for (int r = 0; r < kRows; ++r) {
          const Floats row = Lanes::broadcast_float(a.values[r * a.stride + first + at]);
          for (int q = 0; q < 4; ++q) {
            sum[r][q] = Lanes::multiply_add_toward_zero(row, column[q], sum[r][q]);
          }
        }
      }
    }
  }

  static void finish(const Floats (&base)[4], Words counts, const Floats (&sum)[4], float* c) {
    finish_one<0>(base, counts, sum, c);
    finish_one<1>(base, counts, sum, c);
    finish_one<2>(base, counts, sum, c);
    finish_one<3>(base, counts, sum, c);
  }
  template <int Q>
  static void finish_one(const Floats (&base)[4], Words counts, const Floats (&sum)[4], float* c) {
    const Floats corrected =
        Lanes::floats(Lanes::add_words(Lanes::bits(sum[Q]), count_word<Q>(counts)));
    Lanes::store_floats(c + Q * Lanes::kFloats, Lanes::subtract_exact(corrected, base[Q]));
  }
};

}  // namespace mmaemu::cpu::MMAEMU_TARGET
