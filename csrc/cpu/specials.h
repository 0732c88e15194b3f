// R14 over a tile: outputs whose row or column holds a NaN or Inf code, or whose initial
// accumulator is not finite, take the IEEE value instead of the chain's result.
#pragma once

#include "cpu/tile.h"

namespace mmaemu::cpu {

void patch_specials(const TileProblem& tile);

}  // namespace mmaemu::cpu
