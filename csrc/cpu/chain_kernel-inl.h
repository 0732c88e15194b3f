// The chain on fp32 lanes, written once over Lanes. No include guard beyond the target's namespace:
// each target_*.cc includes it with its own MMAEMU_TARGET and instruction-set flags.
//
// Claim: with E the block's alignment exponent (R4), the loop below returns exactly R3 to R7.
// Why exact:
//  1. Values of FP8 codes are fp32 numbers and a fused multiply-add sees the exact product (R3).
//  2. E: a byte addition gives each product's exponent field, a byte maximum their largest, and one
//     more maximum takes c's exponent field in (packed_codes.h: zeros never win). The field of the
//     start value, E + kHeadroom, is still a byte (start_field_is_a_byte).
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
// Cost, in vector operations on AVX-512 for 4 rows x 64 columns x 32 products: 512 multiply-adds,
// 256 for E (add, max), 384 for the count (add, compare, subtract; with masks 256 and 60 to count
// them), 180 for the start and the end (with VBMI 148). docs/benchmarks.md compares that with the
// rate. Test: the agreement matrix (tests/test_agreement.py) and csrc/tests.

#include <cstdint>

#include "cpu/generic_ops-inl.h"
#include "cpu/packed_codes.h"
#include "cpu/tally-inl.h"

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

// 1.5 * 2^x in lane j from the exponent field of x in the byte of column 4 j + q.
template <int Q>
Lanes::Floats start_value(Lanes::Words exponent) {
  const Lanes::Words field = Lanes::broadcast(kFp32.infinity());
  const Lanes::Words half = Lanes::broadcast(0x400000u);
  if constexpr (Q == 3) {
    return Lanes::floats(and_or<Lanes>(Lanes::template shift_right<1>(exponent), field, half));
  } else {
    return Lanes::floats(
        and_or<Lanes>(Lanes::template shift_left<23 - 8 * Q>(exponent), field, half));
  }
}

// A low-bit byte (sign in bit 7) below this, as signed bytes: negative and not on the grid.
// `exponent` is the start values' field: E + kHeadroom.
inline Lanes::Words inexact_negative_limit(Lanes::Words exponent) {
  constexpr uint32_t kGridOffset = kFp32.bias + kHeadroom + kFrac - 2 * kLowBias;
  const Lanes::Words above_grid =
      Lanes::subtract_bytes_saturating(exponent, Lanes::broadcast(0x01010101u * kGridOffset));
  return Lanes::or_(Lanes::min_bytes(above_grid, Lanes::broadcast(0x01010101u * kLowLimit)),
                    Lanes::broadcast(0x80808080u));
}

// One block of kNfma products for kRows rows and one panel, on the chain state c [row][kPanel].
template <int kNfma, int kRows>
class Block {
  static_assert(sum_keeps_its_binade(kNfma));
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
    Tally<Lanes, kNfma, kRows> inexact_negatives;
    compare_low_bits(a, b, k, exponent, inexact_negatives);
    multiply_add(a, b, k, sum);
    for (int r = 0; r < kRows; ++r) {
      finish(base[r], inexact_negatives.counts(r), sum[r], c + r * kPanel);
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

  // Takes c into E, makes it the start values' exponent E + kHeadroom, and starts the sums with the
  // truncated c.
  static void start(Words& exponent, const float* c, Floats (&sum)[4], Floats (&base)[4]) {
    Floats own[4];
    for (int q = 0; q < 4; ++q) own[q] = Lanes::load_floats(c + q * Lanes::kFloats);
    Words own_exponent = insert_exponent<Lanes, 0>(Lanes::zero(), own[0]);
    own_exponent = insert_exponent<Lanes, 1>(own_exponent, own[1]);
    own_exponent = insert_exponent<Lanes, 2>(own_exponent, own[2]);
    own_exponent = insert_exponent<Lanes, 3>(own_exponent, own[3]);
    exponent = Lanes::add_bytes(Lanes::max_bytes(exponent, own_exponent),
                                Lanes::broadcast(0x01010101u * kHeadroom));
    base[0] = start_value<0>(exponent);
    base[1] = start_value<1>(exponent);
    base[2] = start_value<2>(exponent);
    base[3] = start_value<3>(exponent);
    for (int q = 0; q < 4; ++q) sum[q] = Lanes::add_truncated(base[q], own[q]);
  }

  static void compare_low_bits(const PackedA& a, const PackedB& b, int64_t k,
                               const Words (&exponent)[kRows], Tally<Lanes, kNfma, kRows>& tally) {
    const int64_t first = position_of(k);
    Words limit[kRows];
    for (int r = 0; r < kRows; ++r) limit[r] = inexact_negative_limit(exponent[r]);
    for (int j = 0; j < kNfma / 4; ++j) {
#pragma GCC unroll 4
      for (int p = 0; p < 4; ++p) {
        const int64_t i = 4 * j + p;
        const int64_t at = position_in_block(j, p);
        const Words column = Lanes::load(b.low + (k + i) * kPanel);
        for (int r = 0; r < kRows; ++r) {
          const Words row = Lanes::broadcast(a.low[r * a.stride + first + at]);
          tally.add(r, static_cast<int>(i), Lanes::add_bytes(row, column), limit[r]);
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
    const Floats corrected = Lanes::floats(add_byte<Lanes, Q>(Lanes::bits(sum[Q]), counts));
    Lanes::store_floats(c + Q * Lanes::kFloats, Lanes::subtract_exact(corrected, base[Q]));
  }
};

}  // namespace mmaemu::cpu::MMAEMU_TARGET
