// The GEMM handler: what XLA calls, around the core that checks and computes.

#include "ffi/cpu_handlers.h"

#include <cstddef>
#include <string_view>
#include <vector>

#include "ffi/attrs.h"
#include "ffi/gemm_call.h"
#include "ffi/pool.h"
#include "xla/ffi/api/ffi.h"

namespace mmaemu::ffi_glue {
namespace {

namespace ffi = xla::ffi;

ffi::Error gemm(ffi::ThreadPool thread_pool, ffi::AnyBuffer a, ffi::AnyBuffer b,
                ffi::AnyBuffer scale_a, ffi::AnyBuffer scale_b, ffi::RemainingArgs remaining,
                ffi::Result<ffi::AnyBuffer> out, InstructionModel model, AccumulationPlan plan,
                std::string_view b_layout, std::string_view kernel, bool has_scale_result,
                bool has_c) {
  std::vector<ffi::AnyBuffer> rest;
  for (size_t i = 0; i < remaining.size(); ++i) {
    auto buffer = remaining.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) return buffer.error();
    rest.push_back(*buffer);
  }
  XlaPool pool(thread_pool);
  return call_gemm(pool, a, b, scale_a, scale_b, rest, *out,
                   {model, plan, b_layout, kernel, has_scale_result, has_c});
}

}  // namespace

XLA_FFI_Error* gemm_handler(XLA_FFI_CallFrame* call_frame) {
  static const auto* const kHandler = ffi::Ffi::Bind()
                                          .Ctx<ffi::ThreadPool>()
                                          .Arg<ffi::AnyBuffer>()  // a
                                          .Arg<ffi::AnyBuffer>()  // b
                                          .Arg<ffi::AnyBuffer>()  // scale_a
                                          .Arg<ffi::AnyBuffer>()  // scale_b
                                          .RemainingArgs()        // scale_result, c
                                          .Ret<ffi::AnyBuffer>()  // out
                                          .Attr<InstructionModel>("model")
                                          .Attr<AccumulationPlan>("plan")
                                          .Attr<std::string_view>("b_layout")
                                          .Attr<std::string_view>("kernel")
                                          .Attr<bool>("has_scale_result")
                                          .Attr<bool>("has_c")
                                          .To(gemm)
                                          .release();
  return kHandler->Call(call_frame);
}

}  // namespace mmaemu::ffi_glue
