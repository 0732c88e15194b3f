// Whole GEMM elements by the words of R9 to R19, in doubles and the processor's own floats: naive.h
// continued, and as independent of csrc/numerics. Needs the IEEE environment.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "numerics/accumulate.h"
#include "tests/bits.h"
#include "tests/models.h"
#include "tests/naive.h"

namespace mmaemu::testing {

inline uint32_t naive_add(uint32_t x, uint32_t y) {
  const volatile float result = float_of(x) + float_of(y);
  return canonical_bits(result);
}

inline uint32_t naive_multiply(uint32_t x, uint32_t y) {
  const volatile float result = float_of(x) * float_of(y);
  return canonical_bits(result);
}

// The split that owns k, from the words of R12 and R13.
inline int64_t owner_of(const AccumulationPlan& plan, int64_t k, int64_t index) {
  if (plan.splits == 1) return 0;
  const int64_t tile = index / plan.tile_k;
  if (plan.interleaved) return tile % plan.splits;
  const int64_t tiles = (k + plan.tile_k - 1) / plan.tile_k;
  return tile / ((tiles + plan.splits - 1) / plan.splits);
}

// The k of every split in increasing order.
inline std::vector<std::vector<int64_t>> owned_by_splits(const AccumulationPlan& plan, int64_t k) {
  std::vector<std::vector<int64_t>> owned(static_cast<size_t>(plan.splits));
  for (int64_t index = 0; index < k; ++index) {
    owned[static_cast<size_t>(owner_of(plan, k, index))].push_back(index);
  }
  return owned;
}

// Codes along K of a row of A and a column of B, all finite.
struct Operands {
  FormatPair formats;
  std::vector<uint8_t> a;
  std::vector<uint8_t> b;
};

inline constexpr int64_t kPadding = -1;

// R9: a chain from c over the elements own[begin, end).
inline uint32_t naive_chain(const InstructionModel& model, uint32_t c, const Operands& operands,
                            const std::vector<int64_t>& own, size_t begin, size_t end) {
  for (size_t p = begin; p < end;) {
    std::vector<NaiveProduct> products;
    for (; p < end && products.size() < static_cast<size_t>(model.nfma); ++p) {
      if (own[p] == kPadding) {
        products.push_back({});
        continue;
      }
      const auto k = static_cast<size_t>(own[p]);
      products.push_back(
          naive_product(operands.formats.a, operands.a[k], operands.formats.b, operands.b[k]));
    }
    c = naive_block_step(model, c, products);
  }
  return c;
}

inline uint32_t naive_split(const InstructionModel& model, const AccumulationPlan& plan, uint32_t c,
                            const Operands& operands, const std::vector<int64_t>& own) {
  if (plan.chunk_k == 0) return naive_chain(model, c, operands, own, 0, own.size());
  const auto chunk = static_cast<size_t>(plan.chunk_k);
  uint32_t total = 0;
  for (size_t p = 0; p < own.size(); p += chunk) {
    const size_t end = std::min(p + chunk, own.size());
    total = naive_add(total, naive_chain(model, 0, operands, own, p, end));
  }
  return total;
}

// R12, R13: the partials added in the plan's order, with every slot written down.
inline uint32_t naive_combine(const AccumulationPlan& plan, const std::vector<uint32_t>& p) {
  const size_t count = p.size();
  std::vector<uint32_t> terms = p;
  if (plan.pairwise && count > 1) {
    const size_t half = (count + 1) / 2;
    terms = {p[count - 1]};
    for (size_t i = 0; i < half; ++i) {
      terms.push_back(i + half < count - 1 ? naive_add(p[i], p[i + half]) : p[i]);
    }
  }
  uint32_t total = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) total = naive_add(total, terms[i]);
  return total;
}

inline uint32_t naive_accumulate(const InstructionModel& model, const AccumulationPlan& plan,
                                 uint32_t c, const Operands& operands) {
  std::vector<uint32_t> partials;
  for (auto& own : owned_by_splits(plan, static_cast<int64_t>(operands.a.size()))) {
    // The last tile is filled up. A whole block of that matters where frac is below frac_out.
    while (plan.splits > 1 && own.size() % static_cast<size_t>(plan.tile_k) != 0) {
      own.push_back(kPadding);
    }
    partials.push_back(naive_split(model, plan, c, operands, own));
  }
  return naive_combine(plan, partials);
}

// R14: the accumulator of operands that may hold any code, from any c.
inline uint32_t naive_element(const InstructionModel& model, const AccumulationPlan& plan,
                              uint32_t c, const Operands& operands) {
  double ieee = float_of(c);
  Operands finite = operands;
  for (size_t k = 0; k < operands.a.size(); ++k) {
    const double x = value_of(operands.formats.a, operands.a[k]);
    const double y = value_of(operands.formats.b, operands.b[k]);
    ieee += x * y;
    if (!std::isfinite(x)) finite.a[k] = 0;
    if (!std::isfinite(y)) finite.b[k] = 0;
  }
  if (!std::isfinite(ieee)) return canonical_bits(static_cast<float>(ieee));
  return naive_accumulate(model, plan, c, finite);
}

// x, finite, to the nearest code of a format; ties to even, overflow to Inf.
inline uint32_t naive_round(const FloatFormat& format, double x) {
  const int fraction = format.mantissa_bits;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const uint32_t sign = std::signbit(x) ? uint32_t{1} << (format.exponent_bits + fraction) : 0;
  const auto exponent_of = [&](double y) { return std::max(std::ilogb(y), 1 - bias); };
  if (x == 0) return sign;
  const int e = exponent_of(x);
  const double rounded = std::fabs(std::ldexp(std::nearbyint(std::ldexp(x, fraction - e)),  //
                                              e - fraction));
  if (rounded == 0) return sign;
  const int field = rounded < std::ldexp(1, 1 - bias) ? 0 : exponent_of(rounded) + bias;
  const auto units =
      static_cast<uint32_t>(std::ldexp(rounded, fraction - std::max(field, 1) + bias));
  const uint32_t code =
      static_cast<uint32_t>(field) << fraction | (units & ((uint32_t{1} << fraction) - 1));
  return sign | std::min(code, format.has_infinity ? format.infinity() : code);
}

struct NaiveScales {
  uint32_t a = 0x3F800000u;
  uint32_t b = 0x3F800000u;
  uint32_t result = 0x3F800000u;  // 1 where there is none
};

// R16 to R19.
inline uint32_t naive_output(const FloatFormat& out, const NaiveScales& scales, uint32_t acc) {
  const volatile float y17 =
      std::fma(float_of(acc), float_of(naive_multiply(scales.a, scales.b)), 0.0f);
  const uint32_t y_bits = canonical_bits(y17);
  if (out.bits() == 32) return y_bits;
  const float y = float_of(out.bits() == 8 ? naive_multiply(y_bits, scales.result) : y_bits);
  if (std::isnan(y)) return out.canonical_nan;
  if (out.bits() == 16) {
    const uint32_t infinity = (std::signbit(y) ? 0x8000u : 0) | out.infinity();
    return std::isinf(y) ? infinity : naive_round(out, y);
  }
  const double limit = out.has_infinity ? 57344 : 448;
  return naive_round(out, std::clamp<double>(y, -limit, limit));
}

}  // namespace mmaemu::testing
