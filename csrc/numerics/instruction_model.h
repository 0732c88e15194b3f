// The numbers of one instruction model (the table below R9) and the bounds that make it exact.
#pragma once

#include <cstdint>

#include "numerics/portability.h"

namespace mmaemu {

struct InstructionModel {
  int32_t nfma;      // products per block step
  int32_t frac;      // fraction bits of the alignment (R5)
  int32_t frac_out;  // fraction bits of a block result (R7)
  int32_t min_exp;   // floor of the alignment exponent (R4)
  bool late_c;       // the accumulator is added after the block sum (R8)
};

inline constexpr int kMaxNfma = 1024;
inline constexpr int kMaxFrac = 40;
inline constexpr int kMaxFracOut = 23;

// A product is below 2^(E+2) and the accumulator below 2^(E+1), both on the grid 2^(E - frac).
// So a block sum is below (4 nfma + 2) * 2^frac units and must fit a signed 64-bit integer.
static_assert((4 * int64_t{kMaxNfma} + 2) < (int64_t{1} << (62 - kMaxFrac)));

MMAEMU_HD constexpr bool is_valid(const InstructionModel& model) {
  return 1 <= model.nfma && model.nfma <= kMaxNfma && 1 <= model.frac && model.frac <= kMaxFrac &&
         1 <= model.frac_out && model.frac_out <= kMaxFracOut && -1000 <= model.min_exp &&
         model.min_exp <= 127;
}

}  // namespace mmaemu
