// What XLA, or the entry for numpy arrays, hands to the GEMMs of every platform, checked against
// what mmaemu_jax/primitive.py promised. Operands: a (*L, M, K), b (*L, N, K) or (*L, K, N),
// scale_a (*L), scale_b (*L), then scale_result (*L) if has_scale_result, then c (*L, M, N) if
// has_c. Every leading dimension of an operand is 1 or the output's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cpu/gemm.h"
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

struct GemmOperands {
  xla::ffi::AnyBuffer a;
  xla::ffi::AnyBuffer b;
  xla::ffi::AnyBuffer scale_a;
  xla::ffi::AnyBuffer scale_b;
  std::vector<xla::ffi::AnyBuffer> rest;  // scale_result, c
  xla::ffi::AnyBuffer out;
};

// Larger operands are refused, as are negative dimensions: what is computed from sizes then stays
// far inside 64 bits. Dimensions of zero are left out of the count, as numpy does.
inline constexpr int64_t kMaxBytes = int64_t{1} << 60;

// INVALID_ARGUMENT with the package's prefix.
xla::ffi::Error invalid(const std::string& what);

// Calls the handler. An allocation that fails while it decodes the frame is RESOURCE_EXHAUSTED,
// because nothing may be thrown at XLA.
XLA_FFI_Error* call_handler(const xla::ffi::Ffi& handler, XLA_FFI_CallFrame* call_frame);

// The buffers behind the fixed operands, or why one is none.
xla::ffi::Error take_rest(xla::ffi::RemainingArgs remaining,
                          std::vector<xla::ffi::AnyBuffer>& rest);

// The problem of a call, its pointers those of the buffers, or what is wrong with the call.
xla::ffi::Error make_problem(const GemmOperands& operands, const GemmAttributes& attrs,
                             cpu::GemmProblem& problem);

}  // namespace mmaemu::ffi_glue
