// The order in which kernels add chains and splits (R11 to R13), on operands that show it: sums of
// tiles so far apart in size that fp32 rounds most of their additions.

#include <cstdint>
#include <vector>

#include "cpu/ieee_env.h"
#include "cpu/portable.h"
#include "tests/check.h"
#include "tests/gemm_case.h"
#include "tests/models.h"
#include "tests/random.h"
#include "tests/targets.h"

namespace mmaemu::testing {
namespace {

// Any mantissa of E5M2 with the given exponent field, either sign.
uint8_t code_of(Random& random, int64_t field) {
  return static_cast<uint8_t>(field << 2 | (random.bits() & 0x83));
}

// Each stretch of `tile` elements has an exponent of its own.
GemmCase uneven_case(Random& random, const AccumulationPlan& plan, int64_t k) {
  GemmCase gemm;
  gemm.model = random.one_in(2) ? kEarly16 : kEarly32;
  gemm.plan = plan;
  gemm.formats = {kE5M2, kE5M2};
  gemm.b_is_kn = random.one_in(2);
  gemm.set_shape(3, 5, k);
  const int64_t tile = plan.splits > 1 ? plan.tile_k : 128;
  std::vector<int64_t> fields;
  for (int64_t i = 0; i <= k / tile; ++i) fields.push_back(random.between(1, 30));
  for (int64_t i = 0; i < gemm.m * k; ++i) {
    gemm.a.push_back(code_of(random, fields[static_cast<size_t>(i % k / tile)]));
  }
  for (int64_t i = 0; i < gemm.n * k; ++i) gemm.b.push_back(code_of(random, 15));
  return gemm;
}

void check_plan(Random& random, const AccumulationPlan& plan) {
  cpu::SerialPool serial;
  for (const int64_t k : {300, 640, 1299}) {
    const GemmCase gemm = uneven_case(random, plan, k);
    const std::vector<uint32_t> expected = run_fp32(gemm, cpu::portable_target(), serial);
    for (const cpu::KernelTarget* target : usable_targets()) {
      check_equal(target->name, gemm, expected, run_fp32(gemm, *target, serial));
    }
  }
}

}  // namespace
}  // namespace mmaemu::testing

int main() {
  using namespace mmaemu::testing;
  const mmaemu::cpu::ScopedIeeeEnv ieee;
  Random random(1);
  for (const int64_t chunk_k : {0, 1, 40, 128}) {
    for (int64_t splits = 1; splits <= 9; ++splits) {
      check_plan(random, {chunk_k, splits, 128, false, false});
      for (const int64_t tile_k : {24, 64}) {
        check_plan(random, {chunk_k, splits, tile_k, true, false});
        check_plan(random, {chunk_k, splits, tile_k, true, true});
      }
    }
  }
  return finish();
}
