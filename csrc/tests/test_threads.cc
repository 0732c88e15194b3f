// Many threads call the kernels at once, through a pool that they share and through pools of their
// own: every caller gets its own bits.

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "cpu/dispatch.h"
#include "cpu/portable.h"
#include "ffi/host_pool.h"
#include "tests/check.h"
#include "tests/gemm_case.h"
#include "tests/operand_families.h"
#include "tests/plans.h"
#include "tests/thread_pool.h"
#include "tests/workload.h"

namespace mmaemu::testing {
namespace {

constexpr int kCallers = 6;

// Large enough for the pool, small enough for a sanitizer.
GemmCase make_case(uint64_t seed) {
  Random random(seed);
  GemmCase gemm;
  gemm.model = random.one_in(2) ? kEarly16 : kEarly32;
  gemm.plan = random.pick(kPlans);
  gemm.formats = random.pick(kFormatPairs);
  gemm.b_is_kn = random.one_in(2);
  gemm.set_shape(66 + static_cast<int64_t>(seed), 130, 31);
  fill_operands(gemm, random, Family::kRareSpecials);
  return gemm;
}

// What one caller found; the checks belong to the main thread.
struct Finding {
  int64_t calls = 0;
  std::string differs;
};

// Caller `index` runs every target in a normal build, one of them under a sanitizer.
std::vector<const cpu::KernelTarget*> targets_of(size_t index) {
  std::vector<const cpu::KernelTarget*> usable;
  for (const cpu::TargetStatus& status : cpu::targets()) {
    if (status.usable) usable.push_back(status.target);
  }
  if (kFewerCases) return {usable[index % usable.size()]};
  return usable;
}

void call_often(const GemmCase& gemm, size_t index, const std::vector<uint32_t>& expected,
                cpu::TaskPool& shared, Finding& finding) {
  ffi_glue::HostPool own(2);
  for (const cpu::KernelTarget* target : targets_of(index)) {
    for (cpu::TaskPool* pool : {&shared, static_cast<cpu::TaskPool*>(&own)}) {
      ++finding.calls;
      std::vector<uint32_t> actual(expected.size());
      cpu::run_gemm(gemm.problem(actual.data()), *target, *pool);
      if (actual != expected) finding.differs += std::string(" ") + target->name;
    }
  }
}

void check_callers(cpu::TaskPool& shared) {
  cpu::SerialPool serial;
  std::vector<GemmCase> cases;
  std::vector<std::vector<uint32_t>> expected;
  for (int i = 0; i < kCallers; ++i) {
    cases.push_back(make_case(static_cast<uint64_t>(i)));
    expected.push_back(run_fp32(cases.back(), cpu::portable_target(), serial));
  }
  std::vector<Finding> findings(kCallers);
  std::vector<std::thread> callers;
  for (size_t i = 0; i < kCallers; ++i) {
    callers.emplace_back([&, i] { call_often(cases[i], i, expected[i], shared, findings[i]); });
  }
  for (std::thread& caller : callers) caller.join();
  for (size_t i = 0; i < kCallers; ++i) {
    MMAEMU_CHECK(findings[i].differs.empty(), cases[i].text(), findings[i].differs);
    MMAEMU_CHECK(findings[i].calls >= 2, i, findings[i].calls);
  }
}

}  // namespace
}  // namespace mmaemu::testing

int main() {
  using namespace mmaemu::testing;
  for (int round = 0; round < (kFewerCases ? 1 : 10); ++round) {
    ThreadPool shared(3);
    check_callers(shared);
  }
  return finish();
}
