// One GEMM as every CUDA kernel gets it: by value, with device pointers.
#pragma once

#include <cstdint>
#include <optional>

#include "cpu/gemm.h"
#include "numerics/accumulate.h"
#include "numerics/epilogue.h"
#include "numerics/formats.h"
#include "numerics/instruction_model.h"
#include "numerics/portability.h"

namespace mmaemu::cuda {

// Leading dimensions left after those of size 1 are dropped.
inline constexpr int kMaxBatchDims = 8;

// How one operand moves, in elements, with each leading dimension.
struct BatchStrides {
  int64_t of[kMaxBatchDims];
};

struct Gemm {
  InstructionModel model;
  AccumulationPlan plan;
  FloatFormat fmt_a;
  FloatFormat fmt_b;
  FloatFormat fmt_out;
  int64_t batches;
  int64_t m;
  int64_t n;
  int64_t k;
  int batch_rank;
  int64_t batch[kMaxBatchDims];
  BatchStrides a_strides;
  BatchStrides b_strides;
  BatchStrides scale_a_strides;
  BatchStrides scale_b_strides;
  BatchStrides scale_result_strides;
  BatchStrides c_strides;
  int64_t b_stride_n;
  int64_t b_stride_k;  // one of the two is 1
  const uint8_t* a;    // [M, K] per batch element
  const uint8_t* b;
  const uint32_t* scale_a;  // fp32 bits
  const uint32_t* scale_b;
  const uint32_t* scale_result;  // or null
  const uint32_t* c;             // [M, N], or null
  void* out;                     // [batches, M, N]

  MMAEMU_HD int64_t offset(const BatchStrides& strides, int64_t index) const {
    int64_t sum = 0;
    for (int d = batch_rank - 1; d >= 0; --d) {
      sum += index % batch[d] * strides.of[d];
      index /= batch[d];
    }
    return sum;
  }

  MMAEMU_HD Epilogue epilogue(int64_t index) const {
    const uint32_t result =
        scale_result == nullptr ? 0 : scale_result[offset(scale_result_strides, index)];
    return {fmt_out,
            multiply_fp32(scale_a[offset(scale_a_strides, index)],
                          scale_b[offset(scale_b_strides, index)]),
            result, scale_result != nullptr};
  }
};

// Writes `code`, of 1, 2 or 4 bytes, as output element `index`.
MMAEMU_HD inline void store_code(const Gemm& gemm, int64_t index, uint32_t code) {
  const int bits = gemm.fmt_out.bits();
  if (bits == 32) {
    static_cast<uint32_t*>(gemm.out)[index] = code;
  } else if (bits == 16) {
    static_cast<uint16_t*>(gemm.out)[index] = static_cast<uint16_t>(code);
  } else {
    static_cast<uint8_t*>(gemm.out)[index] = static_cast<uint8_t>(code);
  }
}

// The same problem with its leading dimensions in place; nothing where too many are left.
std::optional<Gemm> make_gemm(const cpu::GemmProblem& problem);

}  // namespace mmaemu::cuda
