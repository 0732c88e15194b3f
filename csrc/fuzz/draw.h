// Models and plans from a fuzzer's bytes: usual ones, any valid ones, any numbers at all.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "fuzz/input.h"
#include "numerics/accumulate.h"
#include "numerics/instruction_model.h"
#include "tests/models.h"
#include "tests/plans.h"

namespace mmaemu::fuzz {

// Numbers where index arithmetic goes wrong, if it does.
inline constexpr std::array<int64_t, 24> kHardNumbers{0,
                                                      1,
                                                      2,
                                                      -1,
                                                      -2,
                                                      3,
                                                      16,
                                                      64,
                                                      128,
                                                      4096,
                                                      4097,
                                                      1 << 30,
                                                      (1 << 30) + 1,
                                                      int64_t{1} << 31,
                                                      (int64_t{1} << 31) - 1,
                                                      (int64_t{1} << 32) + 1,
                                                      int64_t{1} << 40,
                                                      (int64_t{1} << 40) + 1,
                                                      int64_t{1} << 60,
                                                      (int64_t{1} << 60) + 1,
                                                      int64_t{1} << 62,
                                                      std::numeric_limits<int64_t>::max(),
                                                      std::numeric_limits<int64_t>::min(),
                                                      -(int64_t{1} << 32)};

inline InstructionModel draw_valid_model(Input& input, int64_t max_nfma) {
  constexpr std::array<InstructionModel, 5> kUsual{testing::kEarly16,
                                                   testing::kEarly32,
                                                   testing::kLate32,
                                                   {16, 13, 13, -1000, false},
                                                   {32, 13, 13, -41, false}};
  if (input.flag()) return input.pick(kUsual);
  return {static_cast<int32_t>(input.between(1, max_nfma)),
          static_cast<int32_t>(input.between(1, 40)), static_cast<int32_t>(input.between(1, 23)),
          static_cast<int32_t>(input.between(-1000, 127)), input.flag()};
}

// At most 64 splits, so that a call is cheap.
inline AccumulationPlan draw_valid_plan(Input& input) {
  if (input.flag()) return input.pick(testing::kPlans);
  const int64_t chunk = input.flag() ? 0 : input.between(1, 300);
  const int64_t splits = input.flag() ? 1 : input.between(1, 64);
  return {chunk, splits, input.between(1, 200), input.flag(), input.flag()};
}

}  // namespace mmaemu::fuzz
