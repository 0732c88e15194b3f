// The SIMD targets; each is compiled alone, with its own instruction-set flags.
#pragma once

#include "cpu/tile.h"

namespace mmaemu::cpu {

const KernelTarget& avx2_target();
const KernelTarget& avx512_target();
const KernelTarget& avx512_vbmi_target();
const KernelTarget& neon_target();

}  // namespace mmaemu::cpu
