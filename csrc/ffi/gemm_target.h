// The name under which XLA finds the GEMM handler of every platform.
#pragma once

namespace mmaemu::ffi_glue {

// Versioned: a change of bits or attributes changes the name.
inline constexpr const char* kGemmTarget = "mmaemu_scaled_mm_v1";

}  // namespace mmaemu::ffi_glue
