// The CUDA kernels, by name: what each runs, where, and how it is launched.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "cuda/gemm.h"
#include "cuda/runtime.h"

namespace mmaemu::cuda {

inline constexpr int64_t kMaxBlocks = std::numeric_limits<int32_t>::max();  // of gridDim.x

// Device memory that XLA lent for one call; its size follows from the call (cuda.py).
struct Workspace {
  uint8_t* data;
  int64_t size;
};

struct Kernel {
  const char* name;
  const char* what;   // one line for people
  bool experimental;  // has never run on a GPU: only on request, after its self-test
  // The compute capability it needs, times ten; exact: no other one will do.
  int capability;
  bool exact_capability;
  bool (*runs)(const Gemm& gemm);
  cudaError_t (*launch)(const Gemm& gemm, const Workspace& workspace, cudaStream_t stream);
};

// Fastest first; the last one runs everything everywhere.
const std::vector<Kernel>& kernels();
const Kernel* find_kernel(std::string_view name);

// Whether the kernel can run on a GPU of this compute capability (times ten).
bool runs_on(const Kernel& kernel, int capability);

// The kernel for a call: the one asked for where it runs the model and plan, else the portable one;
// "auto" takes the fastest that is not experimental. Null for an unknown name, or one that the
// capability rules out.
const Kernel* choose_kernel(std::string_view name, int capability, const Gemm& gemm);

cudaError_t launch_portable(const Gemm& gemm, const Workspace& workspace, cudaStream_t stream);
// Each is compiled for the GPUs that run it (CMakeLists.txt).
bool runs_ieee(const Gemm& gemm);
cudaError_t launch_ieee(const Gemm& gemm, const Workspace& workspace, cudaStream_t stream);
bool runs_mma_sync(const Gemm& gemm);
cudaError_t launch_mma_sync(const Gemm& gemm, const Workspace& workspace, cudaStream_t stream);
bool runs_wgmma(const Gemm& gemm);
cudaError_t launch_wgmma(const Gemm& gemm, const Workspace& workspace, cudaStream_t stream);

}  // namespace mmaemu::cuda
