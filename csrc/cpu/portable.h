// The portable kernel: csrc/numerics as it stands, for every model, plan and initial accumulator.
#pragma once

#include "cpu/tile.h"

namespace mmaemu::cpu {

const KernelTarget& portable_target();

}  // namespace mmaemu::cpu
