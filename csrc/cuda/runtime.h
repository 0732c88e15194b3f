// What a kernel source needs from CUDA, or from the shim that runs the same source on the CPU.
#pragma once

#if defined(MMAEMU_CUDA_ON_CPU)
#include "tests/cuda_on_cpu.h"
#else
#include <cuda_runtime.h>

#include <cstddef>
#include <type_traits>

namespace mmaemu::cuda {

// Shared memory of the size given at launch.
__device__ inline unsigned char* dynamic_shared() {
  extern __shared__ __align__(1024) unsigned char memory[];
  return memory;
}

inline constexpr std::size_t kSharedByDefault = 48 * 1024;

// Launches and returns at once; no allocation, no synchronisation.
template <typename... Parameters>
cudaError_t launch(void (*kernel)(Parameters...), int64_t blocks, int threads, std::size_t shared,
                   cudaStream_t stream, std::type_identity_t<Parameters>... arguments) {
  const void* function = reinterpret_cast<const void*>(kernel);
  if (shared > kSharedByDefault) {
    const cudaError_t error = cudaFuncSetAttribute(
        function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (error != cudaSuccess) return error;
  }
  void* pointers[] = {&arguments...};
  return cudaLaunchKernel(function, dim3(static_cast<unsigned>(blocks)),
                          dim3(static_cast<unsigned>(threads)), pointers, shared, stream);
}

}  // namespace mmaemu::cuda
#endif
