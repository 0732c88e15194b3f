// Which CUDA kernel a call gets, and which calls get none.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "cuda/gemm.h"
#include "cuda/kernels.h"
#include "tests/check.h"
#include "tests/gemm_case.h"
#include "tests/models.h"

namespace mmaemu::testing {

inline constexpr std::array<InstructionModel, 3> kIeeeModels{
    kEarly16, kEarly32, {32, 13, 13, -41, false}};
inline constexpr std::array<InstructionModel, 3> kOtherModels{
    kLate32, {16, 12, 13, -132, false}, {8, 13, 13, -132, false}};

inline GemmCase two_by_two() {
  GemmCase gemm;
  gemm.set_shape(2, 2, 2);
  gemm.a.assign(4, 0);
  gemm.b.assign(4, 0);
  return gemm;
}

// Every kernel that is built says what it runs, and the choice follows.
inline void check_choice() {
  const GemmCase gemm = two_by_two();
  uint32_t out[4];
  cuda::Gemm g = *cuda::make_gemm(gemm.problem(out));
  const auto chosen = [&](const char* name, int capability) {
    const cuda::Kernel* kernel = cuda::choose_kernel(name, capability, g);
    return std::string(kernel == nullptr ? "none" : kernel->name);
  };
  for (const InstructionModel& model : kIeeeModels) {
    g.model = model;
    MMAEMU_CHECK(chosen("auto", 80) == "ieee" && chosen("auto", 120) == "ieee", model.nfma);
    MMAEMU_CHECK(chosen("auto", 79) == "portable" && chosen("ieee", 79) == "none");
    MMAEMU_CHECK(chosen("auto", 0) == "portable");
    MMAEMU_CHECK(chosen("auto", 89) == "ieee" && chosen("auto", 90) == "ieee", model.nfma);
  }
  g.model = kEarly32;
  MMAEMU_CHECK(chosen("wgmma", 90) == "wgmma" && chosen("wgmma", 100) == "none");
  MMAEMU_CHECK(chosen("mma_sync", 89) == "portable" && chosen("mma_sync", 90) == "none");
  g.plan = {64, 1, 0, false, false};  // no multiple of a stage
  MMAEMU_CHECK(chosen("wgmma", 90) == "portable");
  g.plan = {};
  g.plan.splits = 1;
  g.model = kEarly16;
  MMAEMU_CHECK(chosen("wgmma", 90) == "portable" && chosen("mma_sync", 89) == "mma_sync");
  for (const InstructionModel& model : kOtherModels) {
    g.model = model;
    MMAEMU_CHECK(chosen("auto", 90) == "portable" && chosen("ieee", 90) == "portable", model.nfma);
  }
  g.model = kEarly32;
  g.c = out;
  MMAEMU_CHECK(chosen("auto", 90) == "portable");
  MMAEMU_CHECK(chosen("none such", 90) == "none");
}

// What the kernels that are chosen by name refuse.
inline void check_refusals() {
  const GemmCase gemm = two_by_two();
  uint32_t out[4];
  const auto runs = [&](const std::string& name, const auto& change) {
    cuda::Gemm g = *cuda::make_gemm(gemm.problem(out));
    if (name == "mma_sync") g.model = kEarly16;
    change(g);
    return cuda::find_kernel(name)->runs(g);
  };
  for (const char* name : {"wgmma", "mma_sync", "ieee"}) {
    MMAEMU_CHECK(runs(name, [](cuda::Gemm& g) { g.k = 1; }), name);
    MMAEMU_CHECK(!runs(name, [](cuda::Gemm& g) { g.k = 0; }), name);
    MMAEMU_CHECK(!runs(name, [&](cuda::Gemm& g) { g.c = out; }), name);
  }
  const auto wgmma_runs = [&](const AccumulationPlan& plan) {
    return runs("wgmma", [&](cuda::Gemm& g) { g.plan = plan; });
  };
  MMAEMU_CHECK(wgmma_runs({128, 1, 0, false, false}) && !wgmma_runs({64, 1, 0, false, false}));
  MMAEMU_CHECK(wgmma_runs({256, 2, 128, false, false}) && !wgmma_runs({64, 2, 128, false, false}));
  MMAEMU_CHECK(wgmma_runs({0, 2, 256, true, false}) && !wgmma_runs({0, 2, 64, true, false}));
  MMAEMU_CHECK(!wgmma_runs({0, 3, 128, true, true}));
  constexpr int64_t kLimit = int64_t{1} << 31;
  for (int64_t cuda::Gemm::* size : {&cuda::Gemm::m, &cuda::Gemm::n, &cuda::Gemm::k}) {
    MMAEMU_CHECK(runs("wgmma", [&](cuda::Gemm& g) { g.*size = kLimit - 1; }));
    MMAEMU_CHECK(!runs("wgmma", [&](cuda::Gemm& g) { g.*size = kLimit; }));
  }
  const auto tiles_run = [&](int64_t m, int64_t n) {
    return runs("wgmma", [&](cuda::Gemm& g) { g.m = m, g.n = n; });
  };
  MMAEMU_CHECK(tiles_run(128 << 16, (128 << 15) - 128) && !tiles_run(128 << 16, 128 << 15));
  MMAEMU_CHECK(!tiles_run((128 << 16) - 127, (128 << 15) - 127));
}

// Leading dimensions of size 1 cost nothing; more than eight others are refused, not miscounted.
inline void check_batch_rank() {
  GemmCase gemm;
  gemm.set_shape(1, 1, 1);
  const auto rank = [&](const Leading& batch) {
    gemm.batch = gemm.batch_a = gemm.batch_b = batch;
    const std::optional<cuda::Gemm> g = cuda::make_gemm(gemm.problem(nullptr));
    return g ? g->batch_rank : -1;
  };
  MMAEMU_CHECK(rank(Leading(12, 1)) == 0);
  MMAEMU_CHECK(rank(Leading(8, 2)) == 8);
  MMAEMU_CHECK(rank(Leading(9, 2)) == -1);
}

}  // namespace mmaemu::testing
