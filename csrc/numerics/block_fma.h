// THE normative block step: d = c + sum over i < nfma of a_i * b_i, as the tensor core does it.
// Rules R3 to R8; every faster kernel must return these bits.
#pragma once

#include <cstdint>

#include "numerics/formats.h"
#include "numerics/instruction_model.h"
#include "numerics/portability.h"
#include "numerics/rounding.h"

namespace mmaemu {

// One term: (-1)^negative * significand * 2^(exponent - fraction_bits). `exponent` is the one that
// takes part in R4 and is not renormalised (R3).
struct Term {
  uint64_t significand;
  int exponent;
  int fraction_bits;
  bool negative;
};

// The exact product of two finite codes (R3).
MMAEMU_HD constexpr Term multiply_exact(const FloatFormat& fmt_a, const Decoded& a,
                                        const FloatFormat& fmt_b, const Decoded& b) {
  return {uint64_t{a.significand} * b.significand, a.exponent + b.exponent,
          fmt_a.mantissa_bits + fmt_b.mantissa_bits, a.negative != b.negative};
}

// A finite fp32 accumulator with its exponent floor(log2 |c|) (R4).
MMAEMU_HD constexpr Term accumulator_term(uint32_t c_bits) {
  const Unpacked c = unpack_fp32(c_bits);
  if (c.magnitude == 0) return {0, 0, 0, false};
  const int leading = floor_log2(c.magnitude);
  return {c.magnitude, c.exponent + leading, leading, c.negative};
}

// R5: the term truncated toward zero, in units of 2^(alignment - frac).
MMAEMU_HD constexpr int64_t align(const Term& term, int alignment, int frac) {
  if (term.significand == 0) return 0;  // its exponent takes no part in the alignment (R3)
  const int shift = frac - term.fraction_bits - (alignment - term.exponent);
  const uint64_t units =
      shift >= 0 ? term.significand << shift : shift_right_truncate(term.significand, -shift);
  return term.negative ? -static_cast<int64_t>(units) : static_cast<int64_t>(units);
}

// One block step over products (i) -> Term for i < nfma, on the finite accumulator c.
template <typename Products>
MMAEMU_HD constexpr uint32_t block_step(const InstructionModel& model, uint32_t c_bits,
                                        const Products& products) {
  const Term c = accumulator_term(c_bits);
  const bool early_c = !model.late_c && c.significand != 0;

  int alignment = model.min_exp;  // R4
  if (early_c && c.exponent > alignment) alignment = c.exponent;
  for (int i = 0; i < model.nfma; ++i) {
    const Term p = products(i);
    if (p.significand != 0 && p.exponent > alignment) alignment = p.exponent;
  }

  int64_t sum = early_c ? align(c, alignment, model.frac) : 0;  // R5, R6
  for (int i = 0; i < model.nfma; ++i) sum += align(products(i), alignment, model.frac);

  const bool negative = sum < 0;  // R7
  const uint64_t magnitude = negative ? -static_cast<uint64_t>(sum) : static_cast<uint64_t>(sum);
  const uint32_t result =
      truncate_to_fp32(negative, magnitude, alignment - model.frac, model.frac_out);
  return model.late_c ? add_fp32(result, c_bits) : result;  // R8
}

}  // namespace mmaemu
