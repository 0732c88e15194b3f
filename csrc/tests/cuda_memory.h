// CUDA kernels and where their memory lies: operands at odd addresses, workspaces of every size,
// batch elements far apart.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "cpu/portable.h"
#include "cuda/gemm.h"
#include "cuda/kernels.h"
#include "tests/check.h"
#include "tests/far_batches.h"
#include "tests/gemm_case.h"
#include "tests/models.h"
#include "tests/operand_families.h"
#include "tests/random.h"

namespace mmaemu::testing {

// The first byte of `memory` whose address is a multiple of `by` and not of 16.
inline int64_t offset_to_multiple(const uint8_t* memory, uint64_t by) {
  for (int64_t offset = 0;; ++offset) {
    const auto address = reinterpret_cast<uintptr_t>(memory) + static_cast<uintptr_t>(offset);
    if (address % by == 0 && address % 16 != 0) return offset;
  }
}

// XLA passes a slice of a buffer as it lies: operands at any address, and no workspace for that, or
// one that is a byte too small and stays as it is beyond its end. A multiple of 15 or 17 is no
// address that the copy engine reads, nor is a row of 300 codes.
inline void check_unaligned_operands() {
  Random random(10);
  cpu::SerialPool serial;
  constexpr int64_t kTooSmall = 4 * 128 + 134 * 64 - 1;
  alignas(128) std::array<uint8_t, 16384> memory;
  for (const InstructionModel& model : {kEarly16, kEarly32}) {
    struct Case {
      int offset_a, offset_b;
      bool b_is_kn;
      int64_t k = 64;
      uint64_t by = 1;
    };
    for (const auto [offset_a, offset_b, b_is_kn, k, by] : {Case{1, 1, false},
                                                            {2, 2, false},
                                                            {4, 4, false},
                                                            {8, 8, false},
                                                            {1, 1, true},
                                                            {1, 0, false},
                                                            {0, 1, false},
                                                            {0, 0, false, 300},
                                                            {0, 0, false, 64, 15},
                                                            {0, 0, false, 64, 17}}) {
      GemmCase gemm;
      gemm.model = model;
      gemm.set_shape(7, b_is_kn ? 134 : 135, k);
      gemm.b_is_kn = b_is_kn;
      fill_operands(gemm, random, Family::kFiniteCodes);
      const std::vector<uint8_t> expected = run_on(gemm, cpu::portable_target(), serial, 0x00);
      std::vector<uint8_t> a(gemm.a.size() + 512), b(gemm.b.size() + 512);
      const int64_t at_a = by == 1 ? offset_a : offset_to_multiple(a.data(), by);
      const int64_t at_b = by == 1 ? offset_b : offset_to_multiple(b.data(), by);
      std::copy(gemm.a.begin(), gemm.a.end(), a.begin() + at_a);
      std::copy(gemm.b.begin(), gemm.b.end(), b.begin() + at_b);
      for (const cuda::Kernel& kernel : cuda::kernels()) {
        const auto run = [&](uint8_t* out) {
          cuda::Gemm g = *cuda::make_gemm(gemm.problem(out));
          g.a = a.data() + at_a;
          g.b = b.data() + at_b;
          if (kernel.runs(g)) {
            memory.fill(0xEE);
            const cuda::Workspace none{nullptr, 0}, small{memory.data(), kTooSmall};
            const bool ok = kernel.launch(g, b_is_kn ? small : none, nullptr) == cudaSuccess;
            const bool kept = std::all_of(memory.begin() + kTooSmall, memory.end(),
                                          [](uint8_t byte) { return byte == 0xEE; });
            MMAEMU_CHECK(ok && kept, kernel.name);
          } else {
            std::copy(expected.begin(), expected.end(), out);
          }
        };
        check_equal(kernel.name, gemm, expected, guarded_output(gemm, kernel.name, 0xFF, run));
      }
    }
  }
}

// The workspace is used where it has just enough room, from its first multiple of 128 on, and
// nothing outside it is written.
inline void check_workspace() {
  Random random(16);
  constexpr int64_t kNeeded = 4 * 128 + 134 * 64;
  GemmCase gemm;
  gemm.model = kEarly32;
  gemm.set_shape(7, 134, 64);
  gemm.b_is_kn = true;
  fill_operands(gemm, random, Family::kFiniteCodes);
  cpu::SerialPool serial;
  const std::vector<uint8_t> expected = run_on(gemm, cpu::portable_target(), serial, 0x00);
  alignas(128) std::array<uint8_t, 16384> memory;
  for (const int64_t offset : {128, 128 + 16, 128 + 112}) {
    const int64_t size = (128 - offset % 128) % 128 + kNeeded;
    for (const int64_t missing : {0, 1}) {
      memory.fill(0xEE);
      const int64_t calls_before = cuda::wgmma_calls;
      const auto run = [&](uint8_t* out) {
        const cuda::Gemm g = *cuda::make_gemm(gemm.problem(out));
        const cuda::Workspace workspace{memory.data() + offset, size - missing};
        const cudaError_t error = cuda::find_kernel("wgmma")->launch(g, workspace, nullptr);
        MMAEMU_CHECK(error == cudaSuccess, offset, missing);
      };
      check_equal("wgmma", gemm, expected, guarded_output(gemm, "wgmma", 0xFF, run));
      MMAEMU_CHECK((cuda::wgmma_calls > calls_before) == (missing == 0), offset, missing);
      const auto kept = [](uint8_t byte) { return byte == 0xEE; };
      MMAEMU_CHECK(std::all_of(memory.begin(), memory.begin() + offset, kept) &&
                       std::all_of(memory.begin() + offset + size, memory.end(), kept),
                   offset, missing);
    }
  }
}

// Batch elements further apart than 32 bits count.
inline void check_far_batches() {
  Random random(9);
  cpu::SerialPool serial;
  const GemmCase gemm = far_case(random, 2, 48);
  const FarBatches far(gemm);
  if (!far.usable()) return;
  const std::vector<uint32_t> expected = run_fp32(gemm, cpu::portable_target(), serial);
  for (const cuda::Kernel& kernel : cuda::kernels()) {
    std::vector<uint32_t> actual(expected.size());
    const cuda::Gemm g = *cuda::make_gemm(far.problem(actual.data()));
    if (!kernel.runs(g)) continue;
    const bool ok = kernel.launch(g, {}, nullptr) == cudaSuccess;
    MMAEMU_CHECK(ok && actual == expected, kernel.name);
  }
}

}  // namespace mmaemu::testing
