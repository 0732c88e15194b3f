// The AVX512 target: the kernel text on the lanes of lanes_avx512.h, compiled with its own flags.
// The namespace keeps its inline functions apart from other targets' copies.
#define MMAEMU_TARGET avx512

#include "cpu/lanes_avx512.h"

namespace mmaemu::cpu::MMAEMU_TARGET {
using Lanes = Avx512Lanes;
}

// The kernel text comes after the lanes it is written over.
#include "cpu/chain_kernel-inl.h"
#include "cpu/epilogue-inl.h"
#include "cpu/pack-inl.h"
#include "cpu/targets.h"
#include "cpu/tile_kernel-inl.h"

namespace mmaemu::cpu {

const KernelTarget& avx512_target() {
  static constexpr KernelTarget kTarget{"avx512",
                                        {avx512::kTileRows, avx512::kTileColumns, avx512::kPanel},
                                        avx512::runs_tile,
                                        avx512::make_scratch,
                                        avx512::accumulate_tile,
                                        avx512::finish_row};
  return kTarget;
}

}  // namespace mmaemu::cpu
