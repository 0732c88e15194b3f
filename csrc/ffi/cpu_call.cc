#include "ffi/cpu_call.h"

#include <new>
#include <string>

#include "cpu/dispatch.h"
#include "cpu/gemm.h"

namespace mmaemu::ffi_glue {

xla::ffi::Error call_on_cpu(cpu::TaskPool& pool, const GemmOperands& operands,
                            const GemmAttributes& attrs) {
  const cpu::KernelTarget* target = cpu::find_target(attrs.kernel);
  if (target == nullptr) {
    return invalid("kernel " + std::string(attrs.kernel) +
                   " is unknown or cannot run on this processor");
  }
  try {
    cpu::GemmProblem problem{};
    xla::ffi::Error error = make_problem(operands, attrs, problem);
    if (error.failure()) return error;
    cpu::run_gemm(problem, *target, pool);
  } catch (const std::bad_alloc&) {
    return xla::ffi::Error(xla::ffi::ErrorCode::kResourceExhausted,
                           "mmaemu_jax: out of memory for the packed panels of a tile");
  }
  return xla::ffi::Error::Success();
}

}  // namespace mmaemu::ffi_glue
