// The GEMM handler: checks the call (gemm_call.h), then calls cpu/gemm.h.

#include "ffi/cpu_handlers.h"

#include <new>
#include <string>
#include <string_view>

#include "cpu/dispatch.h"
#include "cpu/gemm.h"
#include "ffi/attrs.h"
#include "ffi/gemm_call.h"
#include "ffi/pool.h"
#include "xla/ffi/api/ffi.h"

namespace mmaemu::ffi_glue {
namespace {

namespace ffi = xla::ffi;

ffi::Error gemm(ffi::ThreadPool thread_pool, ffi::AnyBuffer a, ffi::AnyBuffer b,
                ffi::AnyBuffer scale_a, ffi::AnyBuffer scale_b, ffi::RemainingArgs rest,
                ffi::Result<ffi::AnyBuffer> out, InstructionModel model, AccumulationPlan plan,
                std::string_view b_layout, std::string_view kernel, bool has_scale_result,
                bool has_c) {
  const GemmAttributes attrs{model, plan, b_layout, kernel, has_scale_result, has_c};
  const cpu::KernelTarget* target = cpu::find_target(kernel);
  if (target == nullptr) {
    return invalid("kernel " + std::string(kernel) + " is unknown or cannot run on this processor");
  }
  try {
    cpu::GemmProblem problem{};
    ffi::Error error = make_problem({a, b, scale_a, scale_b, rest, *out}, attrs, problem);
    if (error.failure()) return error;
    XlaPool pool(thread_pool);
    cpu::run_gemm(problem, *target, pool);
  } catch (const std::bad_alloc&) {
    return ffi::Error(ffi::ErrorCode::kResourceExhausted,
                      "mmaemu_jax: out of memory for the packed panels of a tile");
  }
  return ffi::Error::Success();
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
