// Accumulation plans (R10 to R13): who owns which k, where chains restart, in which order partials
// are added.

#include <array>
#include <cstdint>
#include <vector>

#include "cpu/ieee_env.h"
#include "numerics/accumulate.h"
#include "tests/bits.h"
#include "tests/check.h"
#include "tests/models.h"
#include "tests/naive_gemm.h"
#include "tests/random.h"
#include "tests/workload.h"

namespace mmaemu::testing {
namespace {

// Every field at both ends of its range, and one step beyond.
void check_validity() {
  constexpr int64_t kMaxChunk = int64_t{1} << 40;
  constexpr int64_t kMaxTile = int64_t{1} << 30;
  const struct {
    int64_t chunk_k, splits, tile_k;
    bool valid;
  } rows[] = {{0, 1, 0, true},
              {-1, 1, 0, false},
              {kMaxChunk, 1, 0, true},
              {0, 0, 1, false},
              {kMaxChunk + 1, 1, 0, false},
              {0, 4096, 1, true},
              {0, 4097, 1, false},
              {0, 2, 0, false},
              {0, 1, -1, true},
              {0, 2, kMaxTile, true},
              {0, 2, kMaxTile + 1, false},
              {-1, 2, 1, false},
              {0, -1, kMaxTile, false}};
  for (const auto& row : rows) {
    const AccumulationPlan plan{row.chunk_k, row.splits, row.tile_k, false, false};
    MMAEMU_CHECK(is_valid(plan) == row.valid, row.chunk_k, row.splits, row.tile_k);
  }
}

// A split's elements are its own k in order, then padding alone.
void check_ranges(const AccumulationPlan& plan, int64_t k) {
  const std::vector<std::vector<int64_t>> owned = owned_by_splits(plan, k);
  for (int64_t split = 0; split < plan.splits; ++split) {
    const SplitRange range = split_range(plan, k, split);
    const std::vector<int64_t>& own = owned[static_cast<size_t>(split)];
    bool same = range.length >= static_cast<int64_t>(own.size());
    MMAEMU_CHECK(same, k, plan.splits, plan.tile_k, split, range.length);
    for (int64_t p = 0; same && p < range.length; ++p) {
      const auto at = static_cast<size_t>(p);
      same = at < own.size() ? range.k_of(p) == own[at] : range.k_of(p) >= k;
    }
    MMAEMU_CHECK(same, k, plan.splits, plan.tile_k, plan.interleaved, split);
  }
}

void check_all_ranges() {
  for (const int64_t k : {0, 1, 2, 15, 63, 64, 65, 127, 128, 129, 300, 513, 1000}) {
    check_ranges({0, 1, 0, false, false}, k);
    for (const int64_t splits : {2, 3, 4, 5, 7, 8, 9, 17}) {
      for (const int64_t tile_k : {1, 7, 40, 64, 128}) {
        for (const bool interleaved : {false, true}) {
          check_ranges({0, splits, tile_k, interleaved, false}, k);
        }
      }
    }
  }
}

// K beyond 32 bits: the splits cover K, and a split's elements are where R12 and R13 put them.
void check_large_ranges() {
  const int64_t k = (int64_t{1} << 40) + 77;
  for (const int64_t splits : {2, 3, 7}) {
    for (const bool interleaved : {false, true}) {
      const AccumulationPlan plan{0, splits, 64, interleaved, false};
      int64_t covered = 0;
      for (int64_t split = 0; split < splits; ++split) {
        const SplitRange range = split_range(plan, k, split);
        covered += range.length;
        for (const int64_t p : {int64_t{0}, range.length / 2, range.length - 64}) {
          const int64_t index = range.k_of(p);
          MMAEMU_CHECK(owner_of(plan, k, index) == split, splits, split, p, index);
        }
      }
      MMAEMU_CHECK(covered == (k + 63) / 64 * 64, splits, interleaved, covered);
    }
  }
}

constexpr auto& sum = naive_add;

// R12 "pairwise", every S written out.
uint32_t pairwise(int64_t splits, const std::array<uint32_t, 9>& p) {
  switch (splits) {
    case 1:
      return p[0];
    case 2:
      return sum(p[1], p[0]);
    case 3:
      return sum(sum(p[2], p[0]), p[1]);
    case 4:
      return sum(sum(p[3], sum(p[0], p[2])), p[1]);
    case 5:
      return sum(sum(sum(p[4], sum(p[0], p[3])), p[1]), p[2]);
    case 6:
      return sum(sum(sum(p[5], sum(p[0], p[3])), sum(p[1], p[4])), p[2]);
    case 7:
      return sum(sum(sum(sum(p[6], sum(p[0], p[4])), sum(p[1], p[5])), p[2]), p[3]);
    case 8:
      return sum(sum(sum(sum(p[7], sum(p[0], p[4])), sum(p[1], p[5])), sum(p[2], p[6])), p[3]);
    default:
      return sum(sum(sum(sum(sum(p[8], sum(p[0], p[5])), sum(p[1], p[6])), sum(p[2], p[7])), p[3]),
                 p[4]);
  }
}

uint32_t serial(int64_t splits, const std::array<uint32_t, 9>& p) {
  uint32_t total = p[0];
  for (int64_t s = 1; s < splits; ++s) total = sum(total, p[static_cast<size_t>(s)]);
  return total;
}

void check_combination() {
  Random random(1);
  int64_t different = 0;
  for (int64_t splits = 1; splits <= 9; ++splits) {
    for (int trial = 0; trial < 500; ++trial) {
      std::array<uint32_t, 9> p;  // close exponents: most orders round differently
      for (uint32_t& bits : p) bits = 0x3F800000u + (random.bits() >> 6 | random.bits() << 31);
      const auto partial = [&](int64_t s) { return p[static_cast<size_t>(s)]; };
      const uint32_t in_pairs = combine_splits({0, splits, 64, true, true}, partial);
      const uint32_t in_series = combine_splits({0, splits, 64, true, false}, partial);
      MMAEMU_CHECK(in_pairs == pairwise(splits, p), splits, in_pairs, pairwise(splits, p));
      MMAEMU_CHECK(in_series == serial(splits, p), splits, in_series, serial(splits, p));
      const std::vector<uint32_t> partials(p.begin(), p.begin() + splits);
      MMAEMU_CHECK(in_pairs == naive_combine({0, splits, 64, true, true}, partials), splits);
      different += in_pairs != in_series;
    }
  }
  MMAEMU_CHECK(different > 1000, different);  // the orders can be told apart at all
}

Operands random_operands(Random& random, int64_t k) {
  Operands operands{random.pick(kFormatPairs), {}, {}};
  const auto finite_code = [&](const FloatFormat& format) {
    const int64_t magnitude = random.below(int64_t{format.max_finite} + 1);
    return static_cast<uint8_t>(magnitude | (random.bits() & 0x80));
  };
  for (int64_t i = 0; i < k; ++i) {
    operands.a.push_back(finite_code(operands.formats.a));
    operands.b.push_back(finite_code(operands.formats.b));
  }
  return operands;
}

void check_accumulate(Random& random, const InstructionModel& model, const AccumulationPlan& plan,
                      int64_t k) {
  const Operands operands = random_operands(random, k);
  const uint32_t expected = naive_accumulate(model, plan, 0, operands);
  const uint32_t actual = accumulate(model, plan, 0, k, [&](int64_t index) {
    const auto at = static_cast<size_t>(index);
    return multiply_exact(operands.formats.a, decode(operands.formats.a, operands.a[at]),
                          operands.formats.b, decode(operands.formats.b, operands.b[at]));
  });
  MMAEMU_CHECK(actual == expected, k, model.nfma, plan.chunk_k, plan.splits, plan.tile_k,
               plan.interleaved, plan.pairwise, actual, expected);
}

// Without blocks, dot's accumulator is not even truncated.
void check_no_blocks() {
  constexpr uint32_t kFine = 0x3F800001u;
  const auto product_at = [](int64_t) { return Term{1, 0, 0, false}; };
  for (const InstructionModel& model : {kEarly16, kEarly32, kLate32}) {
    const uint32_t actual = accumulate(model, {0, 1, 0, false, false}, kFine, 0, product_at);
    MMAEMU_CHECK(actual == kFine, model.nfma, actual);
  }
}

// Every chain of a slow plan starts from +0, not from a number too small to be seen beside others.
void check_zeros() {
  const auto product_at = [](int64_t) { return Term{0, 0, 0, false}; };
  for (const InstructionModel& model : {kLate32, InstructionModel{16, 13, 13, -1000, false}}) {
    const uint32_t actual = accumulate(model, {128, 1, 0, false, false}, 0, 300, product_at);
    MMAEMU_CHECK(actual == 0, model.nfma, actual);
  }
}

void check_whole_plans() {
  Random random(2);
  for (const int64_t k : {1, 17, 64, 127, 128, 129, 300, 640, 1001}) {
    for (const InstructionModel& model : {kEarly16, kEarly32, kLate32}) {
      for (const int64_t chunk_k : {0, 128, 100}) {
        check_accumulate(random, model, {chunk_k, 1, 0, false, false}, k);
        for (int64_t splits = 2; splits <= 9; ++splits) {
          check_accumulate(random, model, {chunk_k, splits, 128, false, false}, k);
          check_accumulate(random, model, {chunk_k, splits, 64, true, false}, k);
          check_accumulate(random, model, {chunk_k, splits, 64, true, true}, k);
          check_accumulate(random, model, {chunk_k, splits, 40, true, true}, k);
        }
      }
    }
  }
}

}  // namespace
}  // namespace mmaemu::testing

int main() {
  using namespace mmaemu::testing;
  const mmaemu::cpu::ScopedIeeeEnv ieee;
  check_validity();
  check_all_ranges();
  check_large_ranges();
  check_combination();
  check_no_blocks();
  check_zeros();
  check_whole_plans();
  return finish();
}
