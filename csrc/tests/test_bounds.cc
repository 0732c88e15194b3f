// No kernel reads or writes beyond the end of an operand, the output or its own memory. The bits
// would not tell: what is read too much meets zeros, or is not stored.

#include <cstdint>
#include <vector>

#include "cpu/ieee_env.h"
#include "cpu/portable.h"
#include "tests/gemm_case.h"
#include "tests/guarded_memory.h"
#include "tests/models.h"
#include "tests/operand_families.h"
#include "tests/random.h"
#include "tests/targets.h"

namespace mmaemu::testing {
namespace {

// The output is a block of its own, without guard bytes.
std::vector<uint8_t> output_of(const GemmCase& gemm, const cpu::KernelTarget& target) {
  cpu::SerialPool serial;
  std::vector<uint8_t> out(static_cast<size_t>(gemm.m * gemm.n * (gemm.out.bits() / 8)));
  cpu::run_gemm(gemm.problem(out.data()), target, serial);
  return out;
}

void check_gemm(Random& random, const AccumulationPlan& plan, int64_t m, int64_t n, int64_t k) {
  GemmCase gemm;
  gemm.plan = plan;
  gemm.out = kOutputs[static_cast<size_t>(random.between(0, 4))];
  gemm.set_shape(m, n, k);
  if (gemm.out.bits() == 8) gemm.scale_result = {0x3F800000u};
  fill_operands(gemm, random, Family::kRareSpecials);
  for (const bool b_is_kn : {false, true}) {
    gemm.b_is_kn = b_is_kn;
    const std::vector<uint8_t> expected = output_of(gemm, cpu::portable_target());
    for (const cpu::KernelTarget* target : usable_targets()) {
      check_equal(target->name, gemm, expected, output_of(gemm, *target));
    }
  }
}

}  // namespace
}  // namespace mmaemu::testing

int main() {
  using namespace mmaemu::testing;
  const mmaemu::cpu::ScopedIeeeEnv ieee;
  Random random(1);
  // Blocks of a multiple of 16 bytes end exactly at the guard.
  for (const int64_t k : {5, 77, 300}) {
    check_gemm(random, {0, 1, 0, false, false}, 16, 80, k);
    check_gemm(random, {128, 1, 0, false, false}, 16, 80, k);
    check_gemm(random, {0, 3, 128, false, false}, 16, 80, k);
    check_gemm(random, {128, 3, 64, true, true}, 16, 80, k);
  }
  check_gemm(random, {128, 2, 64, true, false}, 16, 528, 300);  // whole tiles of columns
  check_gemm(random, {64, 1, 0, false, false}, 528, 16, 150);   // and of rows
  return finish();
}
