// The NEON target: the kernel text on the lanes of lanes_neon.h.
// The namespace keeps its inline functions apart from other targets' copies.
#define MMAEMU_TARGET neon

#include "cpu/lanes_neon.h"
// The kernel text comes after the lanes it is written over.
#include "cpu/chain_kernel-inl.h"
#include "cpu/epilogue-inl.h"
#include "cpu/pack-inl.h"
#include "cpu/targets.h"
#include "cpu/tile_kernel-inl.h"

namespace mmaemu::cpu {

const KernelTarget& neon_target() {
  static constexpr KernelTarget kTarget{"neon",
                                        {neon::kTileRows, neon::kTileColumns, neon::kPanel},
                                        neon::runs_tile,
                                        neon::make_scratch,
                                        neon::accumulate_tile,
                                        neon::finish_row};
  return kTarget;
}

}  // namespace mmaemu::cpu
