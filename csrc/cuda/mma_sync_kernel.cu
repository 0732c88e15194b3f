// The kernel for GPUs whose mma.sync is the model (16 products, 13 fraction bits).

#include "cuda/kernels.h"
#include "cuda/mma_step.h"
#include "cuda/tile_gemm.h"

namespace mmaemu::cuda {

using MmaShape = TileShape<2, 4>;

template <bool kIsE5M2A, bool kIsE5M2B>
__global__ void __launch_bounds__(MmaShape::kThreads, 2)
    mmaemu_mma_sync_gemm(const __grid_constant__ Gemm g) {
  run_tasks<TileGemm<MmaStep<kIsE5M2A, kIsE5M2B>, MmaShape>>(g);
}

namespace {

template <bool kIsE5M2A, bool kIsE5M2B>
cudaError_t launch_mma_for(const Gemm& g, cudaStream_t stream) {
  using Tile = TileGemm<MmaStep<kIsE5M2A, kIsE5M2B>, MmaShape>;
  return launch(mmaemu_mma_sync_gemm<kIsE5M2A, kIsE5M2B>, std::min(Tile::tasks(g), kMaxBlocks),
                MmaShape::kThreads, sizeof(typename Tile::Memory), stream, g);
}

}  // namespace

// The instruction's two blocks of 16 are whole wherever a chain starts, as its tail is padded with
// zeros (R9).
bool runs_mma_sync(const Gemm& g) {
  return g.c == nullptr && g.k > 0 && cpu::runs_in_fp32(g.model, 16);
}

cudaError_t launch_mma_sync(const Gemm& g, const Workspace&, cudaStream_t stream) {
  if (g.fmt_a.has_infinity) {
    return g.fmt_b.has_infinity ? launch_mma_for<true, true>(g, stream)
                                : launch_mma_for<true, false>(g, stream);
  }
  return g.fmt_b.has_infinity ? launch_mma_for<false, true>(g, stream)
                              : launch_mma_for<false, false>(g, stream);
}

}  // namespace mmaemu::cuda
