// Accumulation plans (R9 to R13) over any numbers: which are valid, which split owns which k, in
// which order everything is added, and the bits of it all against the definition in doubles.

#include <array>
#include <cstdint>
#include <vector>

#include "cpu/ieee_env.h"
#include "fuzz/draw.h"
#include "fuzz/fail.h"
#include "fuzz/input.h"
#include "fuzz/targets.h"
#include "numerics/accumulate.h"
#include "tests/naive_gemm.h"
#include "tests/random.h"

namespace mmaemu::fuzz {
namespace {

int64_t draw_number(Input& input) {
  return input.flag() ? input.pick(kHardNumbers) : input.between(-4, 251);
}

AccumulationPlan draw_any_plan(Input& input) {
  if (input.flag()) return draw_valid_plan(input);
  return {draw_number(input), draw_number(input), draw_number(input), input.flag(), input.flag()};
}

bool is_within(const AccumulationPlan& plan) {
  const bool chunk = plan.chunk_k >= 0 && plan.chunk_k <= 1'099'511'627'776;
  const bool splits = plan.splits >= 1 && plan.splits <= 4096;
  const bool tile = plan.tile_k >= 1 && plan.tile_k <= 1'073'741'824;
  return chunk && splits && (tile || plan.splits == 1);
}

// The k that split_range gives are those of the words of R12 and R13, in order, then padding.
void check_ownership(const AccumulationPlan& plan, int64_t k) {
  const std::vector<std::vector<int64_t>> owned = testing::owned_by_splits(plan, k);
  for (int64_t split = 0; split < plan.splits; ++split) {
    const SplitRange range = split_range(plan, k, split);
    const std::vector<int64_t>& own = owned[static_cast<size_t>(split)];
    const auto count = static_cast<int64_t>(own.size());
    MMAEMU_FUZZ_CHECK(range.length >= count, k, split, range.length, count);
    for (int64_t p = 0; p < count; ++p) {
      MMAEMU_FUZZ_CHECK(range.k_of(p) == own[static_cast<size_t>(p)], k, split, p);
    }
    for (int64_t p = count; p < range.length && p < count + 1000; ++p) {
      MMAEMU_FUZZ_CHECK(range.k_of(p) >= k, k, split, p);
    }
  }
}

// Sizes that nobody can enumerate: lengths, and the owner of the first and last elements.
void check_large(const AccumulationPlan& plan, int64_t k) {
  __int128 covered = 0;
  for (int64_t split = 0; split < plan.splits; ++split) {
    const SplitRange range = split_range(plan, k, split);
    MMAEMU_FUZZ_CHECK(range.length >= 0, k, split, range.length);
    covered += range.length;
    for (const int64_t p : {int64_t{0}, range.length / 2, range.length - 1}) {
      if (p < 0 || p >= range.length) continue;
      const int64_t index = range.k_of(p);
      if (index >= k) continue;
      const int64_t owner = testing::owner_of(plan, k, index);
      MMAEMU_FUZZ_CHECK(owner == split, k, plan.splits, plan.tile_k, split, p, index, owner);
    }
  }
  const __int128 tile = plan.splits == 1 ? 1 : plan.tile_k;
  MMAEMU_FUZZ_CHECK(covered == (k + tile - 1) / tile * tile, k, plan.splits, plan.tile_k);
}

// combine_splits asks for every partial once and adds them in the order of R12 and R13.
void check_combination(Input& input, const AccumulationPlan& plan) {
  testing::Random random(input.bits(2));
  std::vector<uint32_t> partials;
  for (int64_t s = 0; s < plan.splits; ++s) {
    partials.push_back(0x3F800000u + (random.bits() >> 6 | random.bits() << 31));
  }
  std::vector<int> asked(partials.size());
  const uint32_t actual = combine_splits(plan, [&](int64_t s) {
    ++asked[static_cast<size_t>(s)];
    return partials[static_cast<size_t>(s)];
  });
  for (const int count : asked) MMAEMU_FUZZ_CHECK(count == 1, plan.splits, int64_t{count});
  const uint32_t expected = testing::naive_combine(plan, partials);
  MMAEMU_FUZZ_CHECK(actual == expected, plan.splits, plan.pairwise, actual, expected);
}

testing::Operands draw_operands(Input& input, int64_t k) {
  testing::Operands operands{input.pick(testing::kFormatPairs), {}, {}};
  testing::Random random(input.bits(2));
  const uint32_t mask = input.pick(std::array<uint32_t, 4>{0xFF, 0x8F, 0xF8, 0x7F});
  const auto code = [&](const FloatFormat& format) {
    const uint32_t any = random.bits() & mask;
    return static_cast<uint8_t>((any & 0x7F) > format.max_finite ? any & 0x80 : any);
  };
  for (int64_t i = 0; i < k; ++i) {
    operands.a.push_back(code(operands.formats.a));
    operands.b.push_back(code(operands.formats.b));
  }
  return operands;
}

void check_bits(Input& input, const InstructionModel& model, const AccumulationPlan& plan,
                int64_t k) {
  const testing::Operands codes = draw_operands(input, k);
  const uint32_t expected = testing::naive_accumulate(model, plan, 0, codes);
  const uint32_t actual = accumulate(model, plan, 0, k, [&](int64_t index) {
    MMAEMU_FUZZ_CHECK(index >= 0 && index < k, index, k);
    const auto at = static_cast<size_t>(index);
    return multiply_exact(codes.formats.a, decode(codes.formats.a, codes.a[at]), codes.formats.b,
                          decode(codes.formats.b, codes.b[at]));
  });
  MMAEMU_FUZZ_CHECK(actual == expected, k, model.nfma, model.frac, model.frac_out, model.min_exp,
                    plan.chunk_k, plan.splits, plan.tile_k, plan.interleaved, actual, expected);
}

}  // namespace

Outcome fuzz_plan(const uint8_t* data, size_t size) {
  const cpu::ScopedIeeeEnv ieee;
  Input input(data, size);
  const AccumulationPlan plan = draw_any_plan(input);
  MMAEMU_FUZZ_CHECK(is_valid(plan) == is_within(plan), plan.chunk_k, plan.splits, plan.tile_k);
  if (!is_valid(plan)) return Outcome::kRefused;
  check_combination(input, plan);
  const int64_t large = input.pick(kHardNumbers);
  if (large >= 0 && large <= int64_t{1} << 60) check_large(plan, large);
  // Padding of a tile takes time, too; a nonsensical tile is checked by its range alone.
  if (plan.splits * (plan.splits > 1 ? plan.tile_k : 1) > 1 << 16) return Outcome::kSkipped;
  const int64_t k = input.below(1024);
  check_ownership(plan, k);
  check_bits(input, draw_valid_model(input, 1024), plan, k);
  return Outcome::kComputed;
}

}  // namespace mmaemu::fuzz
