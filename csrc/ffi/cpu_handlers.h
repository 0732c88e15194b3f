// The FFI handlers of this extension, as XLA calls them.
#pragma once

#include "ffi/gemm_target.h"
#include "xla/ffi/api/c_api.h"

namespace mmaemu::ffi_glue {

inline constexpr const char* kProbeTarget = "mmaemu_fp_control_probe";

XLA_FFI_Error* gemm_handler(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* fp_control_probe_handler(XLA_FFI_CallFrame* call_frame);

}  // namespace mmaemu::ffi_glue
