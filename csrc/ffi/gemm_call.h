// One GEMM over buffers described as XLA describes them: the core of the FFI handler and of the
// entry for numpy arrays.
// Operands: a (*L, M, K), b (*L, N, K) or (*L, K, N), scale_a (*L), scale_b (*L), then scale_result
// (*L) if has_scale_result, then c (*L, M, N) if has_c. Every leading dimension of an operand is 1
// or the output's.
#pragma once

#include <string_view>
#include <vector>

#include "cpu/parallel.h"
#include "numerics/accumulate.h"
#include "numerics/instruction_model.h"
#include "xla/ffi/api/ffi.h"

namespace mmaemu::ffi_glue {

struct GemmAttributes {
  InstructionModel model;
  AccumulationPlan plan;
  std::string_view b_layout;
  std::string_view kernel;
  bool has_scale_result;
  bool has_c;
};

// Re-checks everything that mmaemu_jax promised, then computes; `rest` are the optional operands.
xla::ffi::Error call_gemm(cpu::TaskPool& pool, xla::ffi::AnyBuffer a, xla::ffi::AnyBuffer b,
                          xla::ffi::AnyBuffer scale_a, xla::ffi::AnyBuffer scale_b,
                          const std::vector<xla::ffi::AnyBuffer>& rest, xla::ffi::AnyBuffer out,
                          const GemmAttributes& attrs);

}  // namespace mmaemu::ffi_glue
