// Non-finite inputs (R14): what the IEEE value of sum(a b) + c is when it is not finite.
#pragma once

#include <cstdint>

#include "numerics/formats.h"
#include "numerics/portability.h"
#include "numerics/rounding.h"

namespace mmaemu {

class SpecialValue {
 public:
  MMAEMU_HD constexpr void add_product(const Decoded& a, const Decoded& b) {
    if (a.number_class == NumberClass::kFinite && b.number_class == NumberClass::kFinite) return;
    if (a.number_class == NumberClass::kNan || b.number_class == NumberClass::kNan || is_zero(a) ||
        is_zero(b)) {
      nan_ = true;  // a NaN code, or Inf * 0
    } else {
      add_infinity(a.negative != b.negative);
    }
  }

  // Many products at once.
  MMAEMU_HD constexpr void add(bool nan, bool positive_infinity, bool negative_infinity) {
    nan_ = nan_ || nan;
    positive_infinity_ = positive_infinity_ || positive_infinity;
    negative_infinity_ = negative_infinity_ || negative_infinity;
  }

  MMAEMU_HD constexpr bool is_nan() const {
    return nan_ || (positive_infinity_ && negative_infinity_);
  }

  MMAEMU_HD constexpr void add_accumulator(uint32_t c_bits) {
    if (is_nan_fp32(c_bits)) nan_ = true;
    if (is_inf_fp32(c_bits)) add_infinity((c_bits & kFp32.sign_bit()) != 0);
  }

  // The bits that replace the chain's result, or the result itself where the value is finite.
  MMAEMU_HD constexpr uint32_t patch(uint32_t finite_result) const {
    if (is_nan()) return kFp32.canonical_nan;
    if (positive_infinity_) return kFp32.infinity();
    if (negative_infinity_) return kFp32.sign_bit() | kFp32.infinity();
    return finite_result;
  }

 private:
  MMAEMU_HD static constexpr bool is_zero(const Decoded& x) {
    return x.number_class == NumberClass::kFinite && x.significand == 0;
  }
  MMAEMU_HD constexpr void add_infinity(bool negative) {
    (negative ? negative_infinity_ : positive_infinity_) = true;
  }

  bool nan_ = false;
  bool positive_infinity_ = false;
  bool negative_infinity_ = false;
};

}  // namespace mmaemu
