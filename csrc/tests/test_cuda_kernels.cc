// The CUDA kernels, from their own source, against the CPU's portable kernel: models, plans,
// formats, outputs, layouts, batches, odd shapes and adversarial operands, bit for bit.

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cpu/portable.h"
#include "cuda/gemm.h"
#include "cuda/kernels.h"
#include "tests/check.h"
#include "tests/cuda_choice.h"
#include "tests/cuda_memory.h"
#include "tests/gemm_case.h"
#include "tests/models.h"
#include "tests/operand_families.h"
#include "tests/plans.h"
#include "tests/random.h"
#include "tests/workload.h"

namespace mmaemu::testing {
namespace {

constexpr std::array<int64_t, 12> kSizes{0, 1, 15, 16, 17, 31, 33, 63, 64, 65, 66, 130};

// As mmaemu_jax/cuda.py has it, for every kernel.
int64_t workspace_bytes(const GemmCase& gemm) {
  if (!gemm.b_is_kn && gemm.k % 16 == 0) return 0;
  const int64_t row = ceil_div(gemm.k, 16) * 16;
  return (ceil_div(gemm.m * row, 128) + ceil_div(gemm.n * row, 128) + 1) * 128;
}

std::vector<uint8_t> run_cuda(const GemmCase& gemm, const cuda::Kernel& kernel, uint8_t fill) {
  return guarded_output(gemm, kernel.name, fill, [&](uint8_t* out) {
    const std::optional<cuda::Gemm> g = cuda::make_gemm(gemm.problem(out));
    MMAEMU_CHECK(g.has_value(), gemm.text());
    if (g->batches * g->m * g->n == 0) return;
    std::vector<uint8_t> memory(static_cast<size_t>(workspace_bytes(gemm)), fill);
    const cuda::Workspace workspace{memory.data(), static_cast<int64_t>(memory.size())};
    // Blocks of the wgmma kernel have one tile each; those of the others go on to the next.
    const bool is_wgmma = std::string(kernel.name) == "wgmma";
    cuda::most_blocks = is_wgmma || gemm.k % 2 == 0 ? cuda::kMaxBlocks : 2;
    const int64_t calls_before = cuda::wgmma_calls;
    const bool ok = kernel.launch(*g, workspace, nullptr) == cudaSuccess;
    cuda::most_blocks = cuda::kMaxBlocks;
    MMAEMU_CHECK(ok, kernel.name, gemm.text());
    // With the workspace that it asks for, it computes itself.
    MMAEMU_CHECK((cuda::wgmma_calls > calls_before) == is_wgmma, kernel.name, gemm.text());
  });
}

struct Coverage {
  std::set<std::string> kernels;
  std::set<int64_t> m, n;
};

void check_case(const GemmCase& gemm, Coverage& coverage) {
  cpu::SerialPool serial;
  const std::vector<uint8_t> expected = run_on(gemm, cpu::portable_target(), serial, 0x00);
  uint8_t placeholder = 0;
  const cuda::Gemm g = *cuda::make_gemm(gemm.problem(&placeholder));
  for (const cuda::Kernel& kernel : cuda::kernels()) {
    if (!kernel.runs(g)) continue;
    check_equal(kernel.name, gemm, expected, run_cuda(gemm, kernel, 0xFF));
    if (!expected.empty()) coverage.kernels.insert(kernel.name);
  }
  coverage.m.insert(gemm.m);
  coverage.n.insert(gemm.n);
}

std::vector<uint32_t> random_scales(Random& random, int64_t count) {
  constexpr std::array<uint32_t, 8> kScales{0x3F800000u, 0xBE2AAAABu, 0x35800000u, 0x00000001u,
                                            0x7F7FFFFFu, 0x80000000u, 0x7FC00000u, 0x7F800000u};
  std::vector<uint32_t> scales;
  for (int64_t i = 0; i < count; ++i) scales.push_back(random.pick(kScales));
  return scales;
}

const std::array<Leading, 3> kBatches{{{}, {2}, {2, 3}}};

// Shapes of a few tiles at most: what a block of threads does once more is no news.
void draw(GemmCase& gemm, Random& random, Family family, int64_t max_products) {
  gemm.batch = random.one_in(4) ? random.pick(kBatches) : Leading{};
  gemm.batch_a = gemm.batch;
  gemm.batch_b = gemm.batch;
  if (gemm.batch.size() == 2) {
    gemm.batch_a[1] = 1;
    gemm.batch_b[0] = 1;
  }
  do {
    gemm.set_shape(random.pick(kSizes), random.pick(kSizes),
                   random.one_in(2) ? random.pick(kSizes) : random.between(1, 600));
  } while (product(gemm.batch) * gemm.m * gemm.n * gemm.k > max_products);
  gemm.formats = random.pick(kFormatPairs);
  gemm.out = random.pick(kOutputs);
  gemm.b_is_kn = random.one_in(2);
  gemm.scale_a = random_scales(random, product(gemm.batch_a));
  gemm.scale_b = random_scales(random, product(gemm.batch_b));
  gemm.scale_result.clear();
  if (random.one_in(2)) gemm.scale_result = random_scales(random, product(gemm.batch));
  // Unit scales on every other case, so that accumulators are seen as they are.
  if (random.one_in(2)) {
    gemm.out = kFp32;
    gemm.scale_a.assign(gemm.scale_a.size(), 0x3F800000u);
    gemm.scale_b.assign(gemm.scale_b.size(), 0x3F800000u);
  }
  fill_operands(gemm, random, family);
}

void check_matrix(Coverage& coverage) {
  Random random(7);
  std::vector<InstructionModel> models(kIeeeModels.begin(), kIeeeModels.end());
  models.push_back(kOtherModels[0]);
  const int64_t max_products = kFewerCases ? 20'000 : 60'000;
  for (const InstructionModel& model : models) {
    for (const AccumulationPlan& plan : kPlans) {
      for (const Family family : kFamilies) {
        if (kFewerCases && !random.one_in(4)) continue;
        GemmCase gemm;
        gemm.model = model;
        gemm.plan = plan;
        draw(gemm, random, family, max_products);
        cuda::kept_bits = random.one_in(2) ? 0 : 24;
        check_case(gemm, coverage);
      }
    }
  }
}

// Gives every code of a row, from 0 to K, the exponent field of its stretch of `length` codes.
void set_fields(std::vector<uint8_t>& codes, const FloatFormat& format, int64_t k, int64_t length,
                const std::vector<uint32_t>& fields) {
  const uint32_t kept = 0x80u | format.mantissa_mask();
  for (size_t i = 0; i < codes.size(); ++i) {
    const int64_t stretch = static_cast<int64_t>(i) % k / length;
    const uint32_t field = fields[static_cast<size_t>(stretch)] << format.mantissa_bits;
    codes[i] = static_cast<uint8_t>((codes[i] & kept) | field);
  }
}

// Exponents that change with every eight codes of K: chunks, splits and tiles have partial sums of
// all magnitudes, and in another order, or cut elsewhere, they add up to another value.
void fill_unevenly(GemmCase& gemm, Random& random) {
  std::vector<uint32_t> fields(static_cast<size_t>(ceil_div(gemm.k, 8)));
  for (uint32_t& field : fields) field = static_cast<uint32_t>(random.between(0, 14));
  fields[0] = 14;  // a first code that is read in another's place is seen
  fill_operands(gemm, random, Family::kFiniteCodes);
  set_fields(gemm.a, gemm.formats.a, gemm.k, 8, fields);
}

// Every plan, deep enough that all its splits have something to add; four more: chunks that
// end where no split does, where no word does, and after one code; a step that goes on into a last
// tile beyond K.
void check_plans(Coverage& coverage) {
  Random random(12);
  std::vector<AccumulationPlan> plans(kPlans.begin(), kPlans.end());
  plans.push_back({48, 3, 64, false, false});
  plans.push_back({47, 1, 0, false, false});
  plans.push_back({1, 1, 0, false, false});
  plans.push_back({0, 2, 8, true, false});
  int number = 0;
  for (const AccumulationPlan& plan : plans) {
    GemmCase gemm;
    gemm.model = kEarly16;
    gemm.plan = plan;
    gemm.set_shape(5, 11 + number / 2 % 2, 301 - number % 2);
    gemm.formats = kFormatPairs[static_cast<size_t>(number % 4)];
    gemm.b_is_kn = number % 3 == 0 && plan.chunk_k != 47;
    fill_unevenly(gemm, random);
    check_case(gemm, coverage);
    ++number;
  }
}

// All products of a block in one binade, so that sums of powers of two are as large as they get;
// the second half's so far above the first's that an E of one more would cut more of the
// accumulator.
void check_equal_exponents(Coverage& coverage) {
  Random random(14);
  for (const InstructionModel& model : {kEarly16, kEarly32}) {
    for (const FormatPair& formats : kFormatPairs) {
      GemmCase gemm;
      gemm.model = model;
      gemm.set_shape(9, 10, 64);
      gemm.formats = formats;
      fill_operands(gemm, random, Family::kFiniteCodes);
      set_fields(gemm.a, formats.a, gemm.k, 32, {1, 12});
      set_fields(gemm.b, formats.b, gemm.k, 32, {8, 8});
      check_case(gemm, coverage);
    }
  }
}

// The plans that wgmma runs: chains and splits of whole stages, of which the last is cut; several
// tiles in either direction.
void check_whole_stages() {
  Random random(15);
  cpu::SerialPool serial;
  constexpr std::array<AccumulationPlan, 8> kWhole{{{0, 1, 0, false, false},
                                                    {128, 1, 0, false, false},
                                                    {256, 1, 0, false, false},
                                                    {0, 2, 128, false, false},
                                                    {0, 3, 128, false, false},
                                                    {128, 3, 128, false, false},
                                                    {256, 2, 256, true, false},
                                                    {0, 2, 256, true, false}}};
  constexpr std::array<std::array<int64_t, 3>, 3> kShapes{
      {{5, 260, 956}, {130, 9, 1660}, {130, 260, 200}}};
  int number = 0;
  for (const AccumulationPlan& plan : kWhole) {
    for (const auto& [m, n, k] : kShapes) {
      if (k == 200 && plan.splits * plan.chunk_k != 0) continue;
      GemmCase gemm;
      gemm.model = kEarly32;
      gemm.plan = plan;
      gemm.set_shape(m, n, k);
      gemm.formats = kFormatPairs[static_cast<size_t>(number % 4)];
      gemm.b_is_kn = number++ % 3 == 0;
      fill_unevenly(gemm, random);
      const std::vector<uint8_t> expected = run_on(gemm, cpu::portable_target(), serial, 0x00);
      const cuda::Kernel& kernel = *cuda::find_kernel("wgmma");
      check_equal(kernel.name, gemm, expected, run_cuda(gemm, kernel, 0xFF));
    }
  }
}

// More tiles than blocks, each with codes of its own that are not finite.
void check_turns(Coverage& coverage) {
  Random random(13);
  for (const bool b_is_kn : {false, true}) {
    GemmCase gemm;
    gemm.model = kEarly16;
    gemm.set_shape(130, 130, 33);
    gemm.formats = kFormatPairs[2];
    gemm.b_is_kn = b_is_kn;
    fill_operands(gemm, random, Family::kRareSpecials);
    check_case(gemm, coverage);
  }
}

// Chains and chunks beyond the buffers that a kernel's copies go through, into the second round.
void check_long_chains(Coverage& coverage) {
  Random random(9);
  for (const InstructionModel& model : {kEarly16, kEarly32}) {
    for (const AccumulationPlan& plan : {kPlans[0], kPlans[1], kPlans[9]}) {
      for (const int64_t n : {9, 135}) {
        if (kFewerCases && (model.nfma == 16 || (n == 135 && plan.chunk_k != 0))) continue;
        GemmCase gemm;
        gemm.model = model;
        gemm.plan = plan;
        gemm.set_shape(7, n, 1700);
        gemm.formats = random.pick(kFormatPairs);
        gemm.b_is_kn = random.one_in(2);
        fill_operands(gemm, random,
                      random.one_in(2) ? Family::kCancellation : Family::kFiniteCodes);
        check_case(gemm, coverage);
      }
    }
  }
}

// dot: an initial accumulator, whatever it is (R14), which no tile kernel takes.
void check_initial_accumulators(Coverage& coverage) {
  Random random(8);
  for (const InstructionModel& model : {kEarly16, kEarly32, kLate32}) {
    for (const Family family : kFamilies) {
      GemmCase gemm;
      gemm.model = model;
      draw(gemm, random, family, 3'000);
      gemm.c.clear();
      for (int64_t i = 0; i < product(gemm.batch) * gemm.m * gemm.n; ++i) {
        gemm.c.push_back(random.one_in(8) ? 0x7F800000u : random.bits());
      }
      check_case(gemm, coverage);
    }
  }
}

// Every operand has strides of its own, those of size 1 none.
void check_batches(Coverage& coverage) {
  Random random(11);
  GemmCase gemm;
  gemm.batch = {2, 1, 3};
  gemm.batch_a = {2, 1, 1};
  gemm.batch_b = {1, 1, 3};
  gemm.set_shape(3, 5, 40);
  gemm.out = kE5M2;
  gemm.scale_a = {0x3F800000u, 0x3F000000u};
  gemm.scale_b = {0x3F800000u, 0x3E800000u, 0x3E000000u};
  for (uint32_t i = 0; i < 6; ++i) gemm.scale_result.push_back(0x3F800000u - i * 0x100000u);
  fill_operands(gemm, random, Family::kDominated);
  check_case(gemm, coverage);
  gemm.out = kFp32;
  for (int i = 0; i < 2 * 3 * 3 * 5; ++i) gemm.c.push_back(0x48000000u + (random.bits() >> 8));
  check_case(gemm, coverage);
}

}  // namespace
}  // namespace mmaemu::testing

int main() {
  using namespace mmaemu::testing;
  Coverage coverage;
  check_choice();
  check_refusals();
  check_batch_rank();
  check_unaligned_operands();
  check_workspace();
  check_plans(coverage);
  check_equal_exponents(coverage);
  check_whole_stages();
  check_turns(coverage);
  check_batches(coverage);
  check_initial_accumulators(coverage);
  check_far_batches();
  check_matrix(coverage);
  check_long_chains(coverage);
  for (const mmaemu::cuda::Kernel& kernel : mmaemu::cuda::kernels()) {
    MMAEMU_CHECK(coverage.kernels.count(kernel.name) == 1, kernel.name);
  }
  for (const int64_t size : kSizes) {
    MMAEMU_CHECK(coverage.m.count(size) == 1 && coverage.n.count(size) == 1, size);
  }
  return finish();
}
