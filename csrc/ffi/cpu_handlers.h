// The FFI handlers of this extension, as XLA calls them.
#pragma once

#include "xla/ffi/api/c_api.h"

namespace mmaemu::ffi_glue {

// Versioned: a change of bits or attributes changes the name. The CUDA handler will share it.
inline constexpr const char* kGemmTarget = "mmaemu_scaled_mm_v1";
inline constexpr const char* kProbeTarget = "mmaemu_fp_control_probe";

XLA_FFI_Error* gemm_handler(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* fp_control_probe_handler(XLA_FFI_CallFrame* call_frame);

}  // namespace mmaemu::ffi_glue
