// The FFI handler of the CUDA extension, as XLA calls it.
#pragma once

#include "ffi/gemm_target.h"
#include "xla/ffi/api/c_api.h"

namespace mmaemu::ffi_glue {

XLA_FFI_Error* cuda_gemm_handler(XLA_FFI_CallFrame* call_frame);

}  // namespace mmaemu::ffi_glue
