// The AVX512-VBMI target: the kernel text on the lanes of lanes_avx512_vbmi.h, compiled with its
// own flags. The namespace keeps its inline functions apart from other targets' copies.
#define MMAEMU_TARGET avx512_vbmi

#include "cpu/lanes_avx512_vbmi.h"

namespace mmaemu::cpu::MMAEMU_TARGET {
using Lanes = Avx512VbmiLanes;
}

// The kernel text comes after the lanes it is written over.
#include "cpu/chain_kernel-inl.h"
#include "cpu/epilogue-inl.h"
#include "cpu/pack-inl.h"
#include "cpu/targets.h"
#include "cpu/tile_kernel-inl.h"

namespace mmaemu::cpu {

const KernelTarget& avx512_vbmi_target() {
  namespace target = avx512_vbmi;
  static constexpr KernelTarget kTarget{
      "avx512_vbmi",           {target::kTileRows, target::kTileColumns, target::kPanel},
      target::runs_tile,       target::make_scratch,
      target::accumulate_tile, target::finish_row};
  return kTarget;
}

}  // namespace mmaemu::cpu
