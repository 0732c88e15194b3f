// Operands chosen to hurt: each family is a way in which a fast kernel could differ from the rules.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "numerics/formats.h"
#include "tests/gemm_case.h"
#include "tests/random.h"

namespace mmaemu::testing {

enum class Family {
  kAnyCodes,          // uniform, NaN and Inf among them
  kRareSpecials,      // finite but for one code in a hundred
  kFiniteCodes,       // uniform
  kCancellation,      // neighbouring products cancel, so a sum is what was truncated
  kDominated,         // a large accumulator from the first products, then tiny ones
  kLargest,           // the largest codes of one sign
  kTinyNegatives,     // off-grid negative products beside one large product per block
  kSubnormals,        // subnormals and zeros of both signs
  kGrowingExponents,  // each block outgrows the accumulator
};
inline constexpr std::array<Family, 9> kFamilies{
    Family::kAnyCodes,      Family::kRareSpecials, Family::kFiniteCodes,
    Family::kCancellation,  Family::kDominated,    Family::kLargest,
    Family::kTinyNegatives, Family::kSubnormals,   Family::kGrowingExponents};

// Codes along K of one row of A (`is_a`) or one column of B.
class CodeSource {
 public:
  CodeSource(Random& random, Family family, const FloatFormat& format, int64_t depth, bool is_a)
      : random_(random), family_(family), format_(format), depth_(depth), is_a_(is_a) {}

  uint8_t at(int64_t k) {
    const uint8_t code = next(k);
    previous_ = code;
    return code;
  }

 private:
  uint8_t next(int64_t k) {
    switch (family_) {
      case Family::kAnyCodes:
        return static_cast<uint8_t>(random_.bits());
      case Family::kRareSpecials:
        return random_.one_in(100) ? special() : finite();
      case Family::kFiniteCodes:
        return finite();
      case Family::kCancellation:
        if (k % 2 == 0 || random_.one_in(40)) return finite();
        return is_a_ ? previous_ : previous_ ^ 0x80;
      case Family::kDominated:
        return k < 16 ? with_field(format_.exponent_mask() - 1) : with_field(random_.below(3));
      case Family::kLargest:
        return static_cast<uint8_t>(format_.max_finite);
      case Family::kTinyNegatives:
        if (k % 16 == 5) return with_field(format_.exponent_mask() / 2);
        return static_cast<uint8_t>(random_.between(1, 3) | (is_a_ && k % 2 == 0 ? 0x80 : 0));
      case Family::kSubnormals:
        return with_field(0);
      default:
        return with_field(k * (format_.exponent_mask() - 1) / std::max<int64_t>(1, depth_));
    }
  }

  uint8_t sign() { return static_cast<uint8_t>(random_.bits() & 0x80); }
  uint8_t finite() {
    return static_cast<uint8_t>(random_.below(int64_t{format_.max_finite} + 1)) | sign();
  }
  uint8_t special() {
    return static_cast<uint8_t>(random_.between(format_.max_finite + 1, 0x7F)) | sign();
  }
  // Any mantissa with the given exponent field, either sign.
  uint8_t with_field(int64_t field) {
    const uint32_t mantissa = random_.bits() & format_.mantissa_mask();
    return static_cast<uint8_t>(field << format_.mantissa_bits | mantissa) | sign();
  }

  Random& random_;
  Family family_;
  FloatFormat format_;
  int64_t depth_;
  bool is_a_;
  uint8_t previous_ = 0;
};

// Fills the operands of a case whose shape, formats and batch are set.
inline void fill_operands(GemmCase& gemm, Random& random, Family family) {
  const int64_t matrices_a = product(gemm.batch_a);
  const int64_t matrices_b = product(gemm.batch_b);
  gemm.a.assign(static_cast<size_t>(matrices_a * gemm.m * gemm.k), 0);
  gemm.b.assign(static_cast<size_t>(matrices_b * gemm.n * gemm.k), 0);
  for (int64_t row = 0; row < matrices_a * gemm.m; ++row) {
    CodeSource source(random, family, gemm.formats.a, gemm.k, true);
    for (int64_t k = 0; k < gemm.k; ++k)
      gemm.a[static_cast<size_t>(row * gemm.k + k)] = source.at(k);
  }
  for (int64_t column = 0; column < matrices_b * gemm.n; ++column) {
    CodeSource source(random, family, gemm.formats.b, gemm.k, false);
    const int64_t matrix = column / gemm.n * gemm.n * gemm.k;
    const int64_t j = column % gemm.n;
    for (int64_t k = 0; k < gemm.k; ++k) {
      const int64_t at = gemm.b_is_kn ? k * gemm.n + j : j * gemm.k + k;
      gemm.b[static_cast<size_t>(matrix + at)] = source.at(k);
    }
  }
}

}  // namespace mmaemu::testing
