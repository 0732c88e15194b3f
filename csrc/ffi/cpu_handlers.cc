// The GEMM handler: what XLA calls, around the call that checks and computes (cpu_call.h).

#include "ffi/cpu_handlers.h"

#include "ffi/attrs.h"
#include "ffi/cpu_call.h"
#include "ffi/pool.h"
#include "xla/ffi/api/ffi.h"

namespace mmaemu::ffi_glue {
namespace {

namespace ffi = xla::ffi;

ffi::Error gemm(ffi::ThreadPool thread_pool, ffi::AnyBuffer a, ffi::AnyBuffer b,
                ffi::AnyBuffer scale_a, ffi::AnyBuffer scale_b, ffi::RemainingArgs rest,
                ffi::Result<ffi::AnyBuffer> out, const GemmAttributes& attrs) {
  GemmOperands operands{a, b, scale_a, scale_b, {}, *out};
  if (ffi::Error e = take_rest(rest, operands.rest); e.failure()) return e;
  XlaPool pool(thread_pool);
  return call_on_cpu(pool, operands, attrs);
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
                                          .Attrs<GemmAttributes>()
                                          .To(gemm)
                                          .release();
  return call_handler(*kHandler, call_frame);
}

}  // namespace mmaemu::ffi_glue
