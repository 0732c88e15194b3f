// One checked GEMM on the processor's kernels: the core of the FFI handler and of the entry for
// numpy arrays.
#pragma once

#include "cpu/parallel.h"
#include "ffi/gemm_call.h"
#include "xla/ffi/api/ffi.h"

namespace mmaemu::ffi_glue {

// Checks everything that mmaemu_jax promised again, then computes.
xla::ffi::Error call_on_cpu(cpu::TaskPool& pool, const GemmOperands& operands,
                            const GemmAttributes& attrs);

}  // namespace mmaemu::ffi_glue
