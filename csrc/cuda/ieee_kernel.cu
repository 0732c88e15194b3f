// The fast kernel for every GPU from compute capability 8.0 on: IEEE fp32 and byte arithmetic, and
// the tensor cores for exponents.

#include "cpu/packed_codes.h"
#include "cuda/ieee_step.h"
#include "cuda/kernels.h"
#include "cuda/tile_gemm.h"

namespace mmaemu::cuda {

// 64 x 64 outputs; two blocks fit the shared memory and the registers of every such GPU.
using IeeeShape = TileShape<2, 4>;

template <int kNfma, bool kHasE5M2>
__global__ void __launch_bounds__(IeeeShape::kThreads, 2)
    mmaemu_ieee_gemm(const __grid_constant__ Gemm g) {
  run_tasks<TileGemm<IeeeStep<kNfma, kHasE5M2>, IeeeShape>>(g);
}

namespace {

template <int kNfma, bool kHasE5M2>
cudaError_t launch_ieee_for(const Gemm& g, cudaStream_t stream) {
  using Tile = TileGemm<IeeeStep<kNfma, kHasE5M2>, IeeeShape>;
  static_assert(sizeof(typename Tile::Memory) <= 50 * 1024, "two fit 100 KB, with 1 KB each lost");
  const int64_t blocks = std::min(Tile::tasks(g), kMaxBlocks);
  return launch(mmaemu_ieee_gemm<kNfma, kHasE5M2>, blocks, IeeeShape::kThreads,
                sizeof(typename Tile::Memory), stream, g);
}

}  // namespace

bool runs_ieee(const Gemm& g) {
  return g.c == nullptr && g.k > 0 &&
         (cpu::runs_in_fp32(g.model, 16) || cpu::runs_in_fp32(g.model, 32));
}

cudaError_t launch_ieee(const Gemm& g, const Workspace&, cudaStream_t stream) {
  const bool has_e5m2 = g.fmt_a.has_infinity || g.fmt_b.has_infinity;
  if (g.model.nfma == 16) {
    return has_e5m2 ? launch_ieee_for<16, true>(g, stream) : launch_ieee_for<16, false>(g, stream);
  }
  return has_e5m2 ? launch_ieee_for<32, true>(g, stream) : launch_ieee_for<32, false>(g, stream);
}

}  // namespace mmaemu::cuda
