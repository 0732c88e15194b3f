// The AVX2 target: the kernel text on the lanes of lanes_avx2.h, compiled with its own flags.
// The namespace keeps its inline functions apart from other targets' copies.
#define MMAEMU_TARGET avx2

#include "cpu/lanes_avx2.h"
// The kernel text comes after the lanes it is written over.
#include "cpu/chain_kernel-inl.h"
#include "cpu/epilogue-inl.h"
#include "cpu/pack-inl.h"
#include "cpu/targets.h"
#include "cpu/tile_kernel-inl.h"

namespace mmaemu::cpu {

const KernelTarget& avx2_target() {
  static constexpr KernelTarget kTarget{"avx2",
                                        {avx2::kTileRows, avx2::kTileColumns, avx2::kPanel},
                                        avx2::runs_tile,
                                        avx2::make_scratch,
                                        avx2::accumulate_tile,
                                        avx2::finish_row};
  return kTarget;
}

}  // namespace mmaemu::cpu
