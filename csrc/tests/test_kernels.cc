// Every usable kernel target against the portable one, bit for bit, through run_gemm.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cpu/dispatch.h"
#include "cpu/portable.h"
#include "tests/check.h"
#include "tests/gemm_case.h"
#include "tests/models.h"
#include "tests/operand_families.h"
#include "tests/plans.h"
#include "tests/random.h"
#include "tests/thread_pool.h"
#include "tests/workload.h"

namespace mmaemu::testing {
namespace {

constexpr std::array<int64_t, 18> kSizes{0,   1,   15,  16,  17,  63,  64,  65,  66,
                                         127, 128, 129, 130, 255, 256, 257, 258, 300};

// Models the SIMD kernels run, the last one at the bound of runs_in_fp32.
constexpr std::array<InstructionModel, 4> kSimdModels{
    kEarly16, kEarly32, {16, 13, 13, -1000, false}, {32, 13, 13, -41, false}};
// Models they hand to the portable kernel.
constexpr std::array<InstructionModel, 5> kPortableModels{kLate32,
                                                          {16, 12, 13, -132, false},
                                                          {16, 13, 12, -132, false},
                                                          {8, 13, 13, -132, false},
                                                          {32, 13, 13, -40, false}};

struct BatchShape {
  Leading batch;
  Leading a;
  Leading b;
};
const std::array<BatchShape, 5> kBatches{
    {{{}, {}, {}}, {{2}, {2}, {2}}, {{3}, {1}, {3}}, {{2, 3}, {2, 1}, {1, 3}}, {{0}, {1}, {0}}}};

constexpr std::array<uint32_t, 8> kScales{
    0x3F800000u,  // 1
    0xBE2AAAABu,  // -1/6
    0x35800000u,  // 2^-20
    0x00000001u,  // the smallest subnormal
    0x7F7FFFFFu,  // the largest number
    0x80000000u,  // -0
    0x7FC00000u,  // NaN
    0x7F800000u,  // Inf
};

std::vector<uint32_t> random_scales(Random& random, int64_t count) {
  std::vector<uint32_t> scales;
  for (int64_t i = 0; i < count; ++i) {
    scales.push_back(random.one_in(2) ? (random.bits() & 0x87FFFFFFu) | 0x38000000u
                                      : random.pick(kScales));
  }
  return scales;
}

int64_t products_of(const GemmCase& gemm) {
  return std::max<int64_t>(1, product(gemm.batch)) * gemm.m * gemm.n * gemm.k;
}

void draw_shape(GemmCase& gemm, Random& random, int64_t max_products) {
  const BatchShape& shape = random.one_in(2) ? kBatches[0] : random.pick(kBatches);
  gemm.batch = shape.batch;
  gemm.batch_a = shape.a;
  gemm.batch_b = shape.b;
  do {
    gemm.set_shape(random.pick(kSizes), random.pick(kSizes), random.pick(kSizes));
  } while (products_of(gemm) > max_products);
}

// Draws what the loops of main do not fix, and the operands.
void draw_rest(GemmCase& gemm, Random& random, Family family) {
  gemm.formats = random.pick(kFormatPairs);
  gemm.out = random.pick(kOutputs);
  gemm.b_is_kn = random.one_in(2);
  gemm.scale_a = random_scales(random, product(gemm.batch_a));
  gemm.scale_b = random_scales(random, product(gemm.batch_b));
  gemm.scale_result.clear();
  if (random.one_in(2)) gemm.scale_result = random_scales(random, product(gemm.batch));
  // Unit scales on every third case, so that accumulators are seen as they are.
  if (random.one_in(3)) {
    gemm.out = kFp32;
    gemm.scale_a.assign(gemm.scale_a.size(), 0x3F800000u);
    gemm.scale_b.assign(gemm.scale_b.size(), 0x3F800000u);
  }
  fill_operands(gemm, random, family);
}

std::vector<const cpu::KernelTarget*> simd_targets() {
  std::vector<const cpu::KernelTarget*> list;
  for (const cpu::TargetStatus& status : cpu::targets()) {
    if (status.usable && status.target != &cpu::portable_target()) list.push_back(status.target);
  }
  return list;
}

void check_case(const GemmCase& gemm, cpu::TaskPool& pool) {
  cpu::SerialPool serial;
  const std::vector<uint8_t> expected = run_on(gemm, cpu::portable_target(), serial, 0x00);
  for (const cpu::KernelTarget* target : simd_targets()) {
    check_equal(target->name, gemm, expected, run_on(gemm, *target, pool, 0xFF));
  }
}

struct Coverage {
  std::set<int64_t> m, n, k;
  void add(const GemmCase& gemm) {
    const bool empty = products_of(gemm) == 0;
    if (!empty || gemm.m == 0) m.insert(gemm.m);
    if (!empty || gemm.n == 0) n.insert(gemm.n);
    if (!empty || gemm.k == 0) k.insert(gemm.k);
  }
};

// Every model with every plan and every family; the rest is drawn.
void check_matrix(cpu::TaskPool& threads) {
  Random random(1);
  cpu::SerialPool serial;
  Coverage coverage;
  std::vector<InstructionModel> models(kSimdModels.begin(), kSimdModels.end());
  models.push_back(kPortableModels[0]);
  const int64_t repetitions = kFewerCases ? 1 : 3;
  const int64_t max_products = kFewerCases ? 40'000 : 300'000;
  for (int64_t repetition = 0; repetition < repetitions; ++repetition) {
    for (const InstructionModel& model : models) {
      for (const AccumulationPlan& plan : kPlans) {
        for (const Family family : kFamilies) {
          GemmCase gemm;
          gemm.model = model;
          gemm.plan = plan;
          draw_shape(gemm, random, max_products);
          draw_rest(gemm, random, family);
          check_case(gemm, random.one_in(2) ? static_cast<cpu::TaskPool&>(serial) : threads);
          coverage.add(gemm);
        }
      }
    }
  }
  const bool all = coverage.m.size() == kSizes.size() && coverage.n.size() == kSizes.size() &&
                   coverage.k.size() == kSizes.size();
  MMAEMU_CHECK(all, coverage.m.size(), coverage.n.size(), coverage.k.size());
}

// Shapes above the size from which the pool is used: many tiles of every size the grid halves to.
void check_many_tiles(cpu::TaskPool& threads) {
  Random random(2);
  constexpr int64_t kShapes[][3] = {{258, 300, 17}, {300, 258, 63}, {257, 65, 130}, {65, 257, 128},
                                    {1, 300, 1000}, {300, 1, 1000}, {130, 513, 16}};
  for (const auto& shape : kShapes) {
    for (const InstructionModel& model : {kEarly16, kEarly32}) {
      for (const bool b_is_kn : {false, true}) {
        GemmCase gemm;
        gemm.model = model;
        gemm.plan = random.pick(kPlans);
        gemm.set_shape(shape[0], shape[1],
                       kFewerCases ? std::min<int64_t>(shape[2], 33) : shape[2]);
        draw_rest(gemm, random, random.pick(kFamilies));
        gemm.b_is_kn = b_is_kn;
        fill_operands(gemm, random, Family::kRareSpecials);
        check_case(gemm, threads);
      }
    }
  }
}

// Sums so large that even the smallest number is above their grid in the byte arithmetic of the low
// bits (packed_codes.h): negative products that are zero must not count as inexact ones.
void check_zeros_below_large_sums(cpu::TaskPool& pool) {
  for (const InstructionModel& model : {kEarly16, kEarly32}) {
    GemmCase gemm;
    gemm.model = model;
    gemm.formats = kFormatPairs[3];
    constexpr int64_t kGrowing = 1 << 16;
    gemm.set_shape(1, 4, kGrowing + 32);
    gemm.a.assign(static_cast<size_t>(gemm.k), 0x00);
    std::fill_n(gemm.a.begin(), kGrowing, uint8_t{0x7B});
    for (int64_t column = 0; column < gemm.n; ++column) {
      gemm.b.insert(gemm.b.end(), kGrowing, 0x7B);
      gemm.b.insert(gemm.b.end(), 32, 0x81);
    }
    const std::vector<uint32_t> sums = run_fp32(gemm, cpu::portable_target(), pool);
    MMAEMU_CHECK(sums[0] >> 23 == 127 + 45, sums[0]);  // where every product is below the grid
    check_case(gemm, pool);
  }
}

// Without this, the comparison could be the portable kernel with itself.
void check_targets_run_themselves() {
  for (const cpu::KernelTarget* target : simd_targets()) {
    MMAEMU_CHECK(target->accumulate != cpu::portable_target().accumulate, target->name);
    MMAEMU_CHECK(target->finish != cpu::portable_target().finish, target->name);
    cpu::TileProblem tile{};
    for (const AccumulationPlan& plan : kPlans) {
      tile.plan = plan;
      for (const InstructionModel& model : kSimdModels) {
        tile.model = model;
        MMAEMU_CHECK(target->runs(tile), target->name, model.nfma, model.min_exp);
      }
      for (const InstructionModel& model : kPortableModels) {
        tile.model = model;
        MMAEMU_CHECK(!target->runs(tile), target->name, model.nfma, model.min_exp);
      }
    }
    const uint32_t c = 0;
    tile.model = kEarly32;
    tile.c = &c;
    MMAEMU_CHECK(!target->runs(tile), target->name);
  }
}

// Prints what ran; whatever the processor has must have been built and used.
void check_target_list() {
  std::string names;
  for (const cpu::TargetStatus& status : cpu::targets()) {
    if (status.usable) names += std::string(names.empty() ? "" : " ") + status.target->name;
    MMAEMU_CHECK(status.usable == (status.why_not[0] == '\0'), status.target->name);
  }
  std::printf("targets: %s\n", names.c_str());
  std::string expected = "scalar";
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) expected = "avx2 scalar";
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    expected = "avx512 avx2 scalar";
    if (__builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bitalg") &&
        __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("gfni")) {
      expected = "avx512_vbmi " + expected;
    }
  }
#elif defined(__aarch64__)
  expected = "neon scalar";
#endif
  MMAEMU_CHECK(names == expected, names, expected);
  MMAEMU_CHECK(cpu::find_target("auto") == cpu::targets().front().target || names == "scalar");
  MMAEMU_CHECK(cpu::find_target("scalar") == &cpu::portable_target());
  MMAEMU_CHECK(cpu::find_target("none such") == nullptr);
}

// The usable targets, fastest first, on a processor that lacks `missing`.
std::string usable_without(std::string_view missing) {
  std::vector<cpu::CpuFeature> features;
  for (const cpu::CpuFeature& feature : cpu::cpu_features()) {
    features.push_back({feature.name, feature.name != missing});
  }
  std::string names;
  for (const cpu::TargetStatus& status : cpu::targets_with(features)) {
    if (status.usable) names += std::string(" ") + status.target->name;
    MMAEMU_CHECK(status.usable == (status.why_not[0] == '\0'), status.target->name);
  }
  return names;
}

// A target needs every extension that it is compiled with.
void check_missing_features() {
#if defined(__x86_64__)
  const struct {
    const char* usable;
    std::vector<const char*> missing;
  } rows[] = {{" avx512_vbmi avx512 avx2 scalar", {""}},
              {" avx512 avx2 scalar", {"avx512vbmi", "avx512bitalg", "avx512vnni", "gfni"}},
              {" avx2 scalar", {"avx512f", "avx512bw", "avx512dq", "avx512vl"}},
              {" scalar", {"avx2", "fma", "f16c"}}};
  for (const auto& row : rows) {
    for (const char* missing : row.missing) {
      MMAEMU_CHECK(usable_without(missing) == row.usable, missing, usable_without(missing));
    }
  }
#elif defined(__aarch64__)
  MMAEMU_CHECK(usable_without("") == " neon scalar", usable_without(""));
#else
  MMAEMU_CHECK(usable_without("") == " scalar", usable_without(""));
#endif
}

}  // namespace
}  // namespace mmaemu::testing

int main() {
  using namespace mmaemu::testing;
  ThreadPool threads(3);
  check_target_list();
  check_missing_features();
  check_targets_run_themselves();
  check_matrix(threads);
  check_many_tiles(threads);
  check_zeros_below_large_sums(threads);
  return finish();
}
