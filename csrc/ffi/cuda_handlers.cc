// The GEMM handler on CUDA: checks the call (gemm_call.h), chooses a kernel, launches it. It
// neither allocates nor waits, so that XLA may record it into a command buffer. A second result,
// where the lowering asks for one, is workspace.

#include "ffi/cuda_handlers.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "cuda/gemm.h"
#include "cuda/kernels.h"
#include "ffi/attrs.h"
#include "ffi/gemm_call.h"
#include "xla/ffi/api/ffi.h"

namespace mmaemu::ffi_glue {
namespace {

namespace ffi = xla::ffi;

ffi::Error cuda_error(const char* what, cudaError_t error) {
  cudaGetLastError();  // the error is reported here, so the next call must not find it
  return ffi::Error::Internal(std::string("mmaemu_jax: ") + what + ": " +
                              cudaGetErrorString(error));
}

// Compute capability of the current device, times ten.
cudaError_t capability_of_device(int& capability) {
  int device = 0;
  int major = 0;
  int minor = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  }
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  }
  capability = 10 * major + minor;
  return error;
}

ffi::Error take_workspace(ffi::RemainingRets rest, cuda::Workspace& workspace) {
  if (rest.size() == 0) return ffi::Error::Success();
  auto buffer = rest.get<ffi::AnyBuffer>(0);
  if (!buffer.has_value()) return buffer.error();
  workspace = {static_cast<uint8_t*>((*buffer)->untyped_data()),
               static_cast<int64_t>((*buffer)->size_bytes())};
  return ffi::Error::Success();
}

ffi::Error gemm(cudaStream_t stream, ffi::AnyBuffer a, ffi::AnyBuffer b, ffi::AnyBuffer scale_a,
                ffi::AnyBuffer scale_b, ffi::RemainingArgs rest, ffi::Result<ffi::AnyBuffer> out,
                ffi::RemainingRets more, const GemmAttributes& attrs) {
  cpu::GemmProblem problem{};
  GemmOperands operands{a, b, scale_a, scale_b, {}, *out};
  if (ffi::Error e = take_rest(rest, operands.rest); e.failure()) return e;
  ffi::Error error = make_problem(operands, attrs, problem);
  if (error.failure()) return error;
  cuda::Workspace workspace{};
  if (ffi::Error e = take_workspace(more, workspace); e.failure()) return e;
  const std::optional<cuda::Gemm> g = cuda::make_gemm(problem);
  if (!g) return invalid("more than 8 leading dimensions larger than 1 on CUDA");
  if (g->batches == 0 || g->m == 0 || g->n == 0) return ffi::Error::Success();
  int capability = 0;
  if (const cudaError_t e = capability_of_device(capability); e != cudaSuccess) {
    return cuda_error("the GPU's compute capability", e);
  }
  const cuda::Kernel* chosen = cuda::choose_kernel(attrs.kernel, capability, *g);
  if (chosen == nullptr) {
    return invalid("kernel " + std::string(attrs.kernel) +
                   " is unknown or cannot run on a GPU of " + "compute capability " +
                   std::to_string(capability / 10) + "." + std::to_string(capability % 10));
  }
  const cudaError_t launched = chosen->launch(*g, workspace, stream);
  return launched == cudaSuccess ? ffi::Error::Success() : cuda_error(chosen->name, launched);
}

}  // namespace

XLA_FFI_Error* cuda_gemm_handler(XLA_FFI_CallFrame* call_frame) {
  static const auto* const kHandler = ffi::Ffi::Bind()
                                          .Ctx<ffi::PlatformStream<cudaStream_t>>()
                                          .Arg<ffi::AnyBuffer>()  // a
                                          .Arg<ffi::AnyBuffer>()  // b
                                          .Arg<ffi::AnyBuffer>()  // scale_a
                                          .Arg<ffi::AnyBuffer>()  // scale_b
                                          .RemainingArgs()        // scale_result, c
                                          .Ret<ffi::AnyBuffer>()  // out
                                          .RemainingRets()        // workspace
                                          .Attrs<GemmAttributes>()
                                          .To(gemm, {ffi::Traits::kCmdBufferCompatible})
                                          .release();
  return call_handler(*kHandler, call_frame);
}

}  // namespace mmaemu::ffi_glue
