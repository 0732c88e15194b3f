// What tools/perfcheck.py measures.
//   perf_kernels run TARGET NFMA  one GEMM on a target, for an instruction counter
//   perf_kernels rates NFMA       multiply-adds per nanosecond of thread time of every SIMD target,
//                                 taking turns, best of several

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <string>
#include <vector>

#include "cpu/dispatch.h"
#include "cpu/portable.h"
#include "tests/gemm_case.h"
#include "tests/operand_families.h"
#include "tests/random.h"

namespace mmaemu::testing {
namespace {

GemmCase make_case(int nfma, int64_t m, int64_t n, int64_t k) {
  Random random(1);
  GemmCase gemm;
  gemm.model = nfma == 16 ? kEarly16 : kEarly32;
  gemm.out = kBf16;
  gemm.set_shape(m, n, k);
  fill_operands(gemm, random, Family::kFiniteCodes);
  return gemm;
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void run_once(const GemmCase& gemm, const cpu::KernelTarget& target) {
  std::vector<uint8_t> out(static_cast<size_t>(gemm.m * gemm.n * 2));
  cpu::SerialPool serial;
  cpu::run_gemm(gemm.problem(out.data()), target, serial);
}

int run(const char* name, int nfma) {
  const cpu::KernelTarget* target = cpu::find_target(name);
  if (target == nullptr) {
    std::fprintf(stderr, "perf_kernels: no kernel %s here\n", name);
    return 1;
  }
  run_once(make_case(nfma, 130, 200, 512), *target);
  return 0;
}

int rates(int nfma) {
  constexpr int kTurns = 12;
  const GemmCase gemm = make_case(nfma, 512, 512, 2048);
  std::vector<const cpu::KernelTarget*> targets;
  for (const cpu::TargetStatus& status : cpu::targets()) {
    if (status.usable && status.target != &cpu::portable_target()) {
      targets.push_back(status.target);
    }
  }
  std::vector<double> best(targets.size(), std::numeric_limits<double>::infinity());
  for (int turn = 0; turn < kTurns; ++turn) {
    for (size_t i = 0; i < targets.size(); ++i) {
      const double start = thread_seconds();
      run_once(gemm, *targets[i]);
      best[i] = std::min(best[i], thread_seconds() - start);
    }
  }
  const auto products = static_cast<double>(gemm.m * gemm.n * gemm.k);
  for (size_t i = 0; i < targets.size(); ++i) {
    std::printf("%s %.3f\n", targets[i]->name, products / best[i] / 1e9);
  }
  return 0;
}

}  // namespace
}  // namespace mmaemu::testing

int main(int argc, char** argv) {
  using namespace mmaemu::testing;
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "run" && argc == 4) return run(argv[2], std::atoi(argv[3]));
  if (what == "rates" && argc == 3) return rates(std::atoi(argv[2]));
  std::fprintf(stderr, "usage: perf_kernels run TARGET NFMA | rates NFMA\n");
  return 2;
}
