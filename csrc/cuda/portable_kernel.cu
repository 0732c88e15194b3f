#include "cuda/portable_kernel.h"

#include "cuda/kernels.h"

namespace mmaemu::cuda {

__global__ void mmaemu_portable_gemm(const __grid_constant__ Gemm g) {
  const int64_t count = g.batches * g.m * g.n;
  const int64_t step = int64_t{gridDim.x} * kPortableThreads;
  for (int64_t at = int64_t{blockIdx.x} * kPortableThreads + threadIdx.x; at < count; at += step) {
    const int64_t i = at / g.n % g.m;
    const int64_t batch = at / g.n / g.m;
    store_code(g, at, portable_element(g, batch, i, at % g.n));
  }
}

cudaError_t launch_portable(const Gemm& g, const Workspace&, cudaStream_t stream) {
  const int64_t blocks = ceil_div(g.batches * g.m * g.n, kPortableThreads);
  return launch(mmaemu_portable_gemm, std::min(blocks, kMaxBlocks), kPortableThreads, 0, stream, g);
}

}  // namespace mmaemu::cuda
