// The operands of a batched case with batch elements further apart than 32 bits count.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "cpu/gemm.h"
#include "tests/gemm_case.h"
#include "tests/operand_families.h"
#include "tests/random.h"
#include "tests/sparse_memory.h"

namespace mmaemu::testing {

// 5 x 7 x k, `batch` times.
inline GemmCase far_case(Random& random, int64_t batch, int64_t k) {
  GemmCase gemm;
  gemm.batch = gemm.batch_a = gemm.batch_b = {batch};
  gemm.scale_a.assign(static_cast<size_t>(batch), 0x3F800000u);
  gemm.scale_b.assign(static_cast<size_t>(batch), 0x3F800000u);
  gemm.set_shape(5, 7, k);
  fill_operands(gemm, random, Family::kFiniteCodes);
  return gemm;
}

class FarBatches {
 public:
  explicit FarBatches(const GemmCase& gemm)
      : gemm_(gemm), a_((gemm.batch[0] + 1) * kStride), b_((gemm.batch[0] + 1) * kStride) {
    if (!usable()) {
      std::printf("skipped: no address space for batches 2^32 apart\n");
      return;
    }
    const int64_t size_a = gemm.m * gemm.k, size_b = gemm.n * gemm.k;
    for (int64_t i = 0; i < gemm.batch[0]; ++i) {
      std::memcpy(a_.data() + i * kStride, gemm.a.data() + i * size_a, static_cast<size_t>(size_a));
      std::memcpy(b_.data() + i * kStride, gemm.b.data() + i * size_b, static_cast<size_t>(size_b));
    }
  }

  // False where the system limits address space.
  bool usable() const { return a_.data() != nullptr && b_.data() != nullptr; }

  cpu::GemmProblem problem(void* out) const {
    cpu::GemmProblem problem = gemm_.problem(out);
    problem.a = a_.data();
    problem.b = b_.data();
    problem.a_strides = problem.b_strides = {kStride};
    return problem;
  }

 private:
  static constexpr int64_t kStride = (int64_t{1} << 32) + 16;
  const GemmCase& gemm_;
  SparseMemory a_, b_;
};

}  // namespace mmaemu::testing
