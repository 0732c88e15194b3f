// The GEMM handler: what XLA calls, around the call that checks and computes (cpu_call.h).

#include "ffi/cpu_handlers.h"

#include <new>
#include <string_view>

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

XLA_FFI_Error* out_of_memory(const XLA_FFI_Api* api) {
  XLA_FFI_Error_Create_Args args{XLA_FFI_Error_Create_Args_STRUCT_SIZE, nullptr,
                                 "mmaemu_jax: out of memory",
                                 XLA_FFI_Error_Code_RESOURCE_EXHAUSTED};
  return api->XLA_FFI_Error_Create(&args);
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
  try {
    return kHandler->Call(call_frame);
  } catch (const std::bad_alloc&) {  // while decoding the frame; nothing may be thrown at XLA
    return out_of_memory(call_frame->api);
  }
}

}  // namespace mmaemu::ffi_glue
