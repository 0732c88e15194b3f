// Non-finite inputs (R14) through run_gemm, on every target, against IEEE doubles and against the
// normative header.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cpu/dispatch.h"
#include "cpu/ieee_env.h"
#include "cpu/portable.h"
#include "numerics/specials.h"
#include "tests/bits.h"
#include "tests/check.h"
#include "tests/gemm_case.h"
#include "tests/models.h"
#include "tests/naive.h"
#include "tests/operand_families.h"
#include "tests/random.h"
#include "tests/workload.h"

namespace mmaemu::testing {
namespace {

// What doubles make of sum(a b) + c: exact enough to be finite, Inf or NaN.
double ieee_value(const GemmCase& gemm, int64_t i, int64_t j) {
  double sum = gemm.c.empty() ? 0.0 : float_of(gemm.c[static_cast<size_t>(i * gemm.n + j)]);
  for (int64_t k = 0; k < gemm.k; ++k) {
    sum += value_of(gemm.formats.a, gemm.a_at(i, k)) * value_of(gemm.formats.b, gemm.b_at(k, j));
  }
  return sum;
}

Decoded finite_or_zero(const FloatFormat& format, uint8_t code) {
  const Decoded d = decode(format, code);
  return d.number_class == NumberClass::kFinite ? d : decode(format, 0);
}

// The accumulator by csrc/numerics alone.
uint32_t normative(const GemmCase& gemm, int64_t i, int64_t j) {
  uint32_t c = gemm.c.empty() ? 0 : gemm.c[static_cast<size_t>(i * gemm.n + j)];
  SpecialValue value;
  value.add_accumulator(c);
  for (int64_t k = 0; k < gemm.k; ++k) {
    value.add_product(decode(gemm.formats.a, gemm.a_at(i, k)),
                      decode(gemm.formats.b, gemm.b_at(k, j)));
  }
  if (!std::isfinite(float_of(c))) c = 0;
  return value.patch(accumulate(gemm.model, gemm.plan, c, gemm.k, [&](int64_t k) {
    return multiply_exact(gemm.formats.a, finite_or_zero(gemm.formats.a, gemm.a_at(i, k)),
                          gemm.formats.b, finite_or_zero(gemm.formats.b, gemm.b_at(k, j)));
  }));
}

struct Seen {
  int64_t finite = 0;
  int64_t infinite = 0;
  int64_t nan = 0;
};

void check_on_every_target(const GemmCase& gemm, Seen& seen) {
  cpu::SerialPool serial;
  std::vector<uint32_t> expected;
  for (int64_t i = 0; i < gemm.m; ++i) {
    for (int64_t j = 0; j < gemm.n; ++j) {
      const double ieee = ieee_value(gemm, i, j);
      const uint32_t bits = normative(gemm, i, j);
      if (std::isfinite(ieee)) {
        ++seen.finite;
        MMAEMU_CHECK(std::isfinite(float_of(bits)), gemm.text(), i, j, bits);
      } else {
        ++(std::isnan(ieee) ? seen.nan : seen.infinite);
        const uint32_t value = canonical_bits(static_cast<float>(ieee));
        MMAEMU_CHECK(bits == value, gemm.text(), i, j, bits, value);
      }
      expected.push_back(scale_accumulator(bits, 0x3F800000u));
    }
  }
  for (const cpu::TargetStatus& status : cpu::targets()) {
    if (!status.usable) continue;
    check_equal(status.target->name, gemm, expected, run_fp32(gemm, *status.target, serial));
  }
}

// All 65,536 pairs of codes of every format pair as one outer product.
void check_all_pairs(Seen& seen) {
  for (const FormatPair& formats : kFormatPairs) {
    for (const bool b_is_kn : {false, true}) {
      GemmCase gemm;
      gemm.formats = formats;
      gemm.b_is_kn = b_is_kn;
      gemm.set_shape(256, 256, 1);
      for (int code = 0; code < 256; ++code) {
        gemm.a.push_back(static_cast<uint8_t>(code));
        gemm.b.push_back(static_cast<uint8_t>(code));
      }
      check_on_every_target(gemm, seen);
    }
  }
}

// Outputs of one product: every line of an operand is special, or none is.
void check_single_products(Seen& seen) {
  for (const FormatPair& formats : kFormatPairs) {
    for (const bool b_is_kn : {false, true}) {
      for (const uint8_t a : {0x00, 0x38, 0x7C, 0x7F, 0xFC, 0xFF}) {
        for (const uint8_t b : {0x00, 0x38, 0x7C, 0x7F, 0xFC, 0xFF}) {
          GemmCase gemm;
          gemm.formats = formats;
          gemm.b_is_kn = b_is_kn;
          gemm.set_shape(1, 2, 1);
          gemm.a = {a};
          gemm.b = {b, b};
          check_on_every_target(gemm, seen);
        }
      }
    }
  }
}

// Few specials in deep sums: Inf - Inf far apart, in different chunks and splits.
void check_sparse(Seen& seen) {
  Random random(1);
  const AccumulationPlan plans[] = {{0, 1, 0, false, false},
                                    {128, 1, 0, false, false},
                                    {0, 3, 64, true, true},
                                    {128, 2, 128, false, false}};
  for (int64_t i = 0; i < (kFewerCases ? 64 : 400); ++i) {
    GemmCase gemm;
    gemm.model = i % 3 == 0 ? kEarly16 : i % 3 == 1 ? kEarly32 : kLate32;
    gemm.plan = plans[i % 4];
    gemm.formats = random.pick(kFormatPairs);
    gemm.b_is_kn = random.one_in(2);
    gemm.set_shape(random.between(1, 12), random.between(1, 12), random.between(1, 400));
    fill_operands(gemm, random, Family::kFiniteCodes);
    for (int64_t special = random.between(0, 6); special > 0; --special) {
      const bool in_a = random.one_in(2);
      const FloatFormat& format = in_a ? gemm.formats.a : gemm.formats.b;
      // Mostly Inf, where the format has one.
      const uint32_t code = random.one_in(8) ? 0x7F : format.max_finite + 1;
      std::vector<uint8_t>& codes = in_a ? gemm.a : gemm.b;
      const int64_t at = random.below(static_cast<int64_t>(codes.size()));
      codes[static_cast<size_t>(at)] = static_cast<uint8_t>(code | (random.bits() & 0x80));
      // Sometimes a zero or an opposite sign for it to meet.
      if (random.one_in(3))
        (in_a ? gemm.b : gemm.a)[0] = static_cast<uint8_t>(random.bits() & 0x80);
    }
    check_on_every_target(gemm, seen);
  }
}

// Lines longer than what is looked at together (1024 codes), with one Inf anywhere, its opposite or
// a zero to meet anywhere, or nothing but Inf.
void check_long(Seen& seen) {
  Random random(3);
  const uint8_t infinity = 0x7C;
  for (int64_t i = 0; i < (kFewerCases ? 16 : 80); ++i) {
    GemmCase gemm;
    gemm.formats = {kE5M2, kE5M2};
    gemm.b_is_kn = random.one_in(2);
    gemm.set_shape(2, 3, random.between(1000, 3100));
    fill_operands(gemm, random, Family::kFiniteCodes);
    for (uint8_t& code : gemm.a) code = static_cast<uint8_t>((code & 0x3F) | 1);  // positive
    for (uint8_t& code : gemm.b) code = static_cast<uint8_t>((code & 0x3F) | 1);
    const auto at = [&] { return static_cast<size_t>(random.below(gemm.k)); };
    gemm.a[at()] = infinity;  // of row 0
    const size_t k = at();
    const size_t b_index = gemm.b_is_kn ? k * static_cast<size_t>(gemm.n) : k;  // of column 0
    if (random.one_in(2)) gemm.b[b_index] = random.one_in(2) ? infinity | 0x80 : infinity;
    if (random.one_in(4)) gemm.a[k] = 0;
    if (random.one_in(8)) gemm.a.assign(gemm.a.size(), infinity);
    check_on_every_target(gemm, seen);
  }
}

// Initial accumulators: finite ones join the chain, the others are the value or meet their
// opposite.
void check_accumulators(Seen& seen) {
  Random random(2);
  constexpr std::array<uint32_t, 9> kAccumulators{0x00000000u, 0x80000000u, 0x00000001u,
                                                  0x3F800001u, 0xFF7FFFFFu, 0x7F800000u,
                                                  0xFF800000u, 0x7F800001u, 0xFFC00000u};
  for (int64_t i = 0; i < cases(400); ++i) {
    GemmCase gemm;
    gemm.model = random.one_in(2) ? kEarly32 : kLate32;
    gemm.formats = random.pick(kFormatPairs);
    gemm.set_shape(random.between(1, 9), random.between(1, 9), random.between(0, 80));
    fill_operands(gemm, random, random.one_in(2) ? Family::kRareSpecials : Family::kFiniteCodes);
    for (int64_t j = 0; j < gemm.m * gemm.n; ++j) gemm.c.push_back(random.pick(kAccumulators));
    check_on_every_target(gemm, seen);
  }
}

// What a kernel itself returns: initial accumulators that are not finite are taken as +0.
void check_kernel_accumulators() {
  const uint8_t zero = 0;
  for (const uint32_t c : {0x7F800000u, 0xFF800000u, 0x7F800001u}) {
    uint32_t acc = 0xA5A5A5A5u;
    cpu::TileProblem tile{};
    tile.model = kLate32;  // R8 would show the smallest number
    tile.plan = {0, 1, 0, false, false};
    tile.fmt_a = tile.fmt_b = kE5M2;
    tile.m = tile.n = tile.k = 1;
    tile.a = tile.b = &zero;
    tile.c = &c;
    tile.acc = &acc;
    MMAEMU_CHECK(cpu::portable_target().runs(tile));
    cpu::portable_target().accumulate(tile, nullptr);
    MMAEMU_CHECK(acc == 0, c, acc);
  }
}

// R18, R19: what becomes of NaN and Inf in every output format.
void check_outputs() {
  cpu::SerialPool serial;
  const uint8_t infinity = 0x7C;
  const uint8_t minus_infinity = 0xFC;
  const uint8_t nan = 0x7F;
  const uint8_t one = 0x3C;
  struct Row {
    FloatFormat out;
    uint32_t codes[3];  // of +Inf, -Inf and NaN
  };
  const Row rows[] = {{kFp32, {0x7F800000u, 0xFF800000u, 0x7FFFFFFFu}},
                      {kBf16, {0x7F80u, 0xFF80u, 0x7FFFu}},
                      {kFp16, {0x7C00u, 0xFC00u, 0x7FFFu}},
                      {kE4M3, {0x7Eu, 0xFEu, 0x7Fu}},
                      {kE5M2, {0x7Bu, 0xFBu, 0x7Fu}}};
  for (const Row& row : rows) {
    GemmCase gemm;
    gemm.formats = {kE5M2, kE5M2};
    gemm.out = row.out;
    gemm.set_shape(1, 3, 1);
    gemm.a = {one};
    gemm.b = {infinity, minus_infinity, nan};
    const auto size = static_cast<size_t>(row.out.bits() / 8);
    for (const cpu::TargetStatus& status : cpu::targets()) {
      if (!status.usable) continue;
      const std::vector<uint8_t> bytes = run_on(gemm, *status.target, serial);
      for (size_t i = 0; i < 3; ++i) {
        uint32_t code = 0;
        std::memcpy(&code, bytes.data() + i * size, size);
        MMAEMU_CHECK(code == row.codes[i], status.target->name, row.out.bits(), i, code);
      }
    }
  }
}

}  // namespace
}  // namespace mmaemu::testing

int main() {
  using namespace mmaemu::testing;
  const mmaemu::cpu::ScopedIeeeEnv ieee;
  Seen seen;
  check_single_products(seen);
  check_all_pairs(seen);
  check_sparse(seen);
  check_long(seen);
  check_accumulators(seen);
  check_kernel_accumulators();
  check_outputs();
  MMAEMU_CHECK(seen.finite > 100 && seen.infinite > 100 && seen.nan > 100, seen.finite,
               seen.infinite, seen.nan);
  return finish();
}
