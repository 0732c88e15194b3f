// The epilogue on a GPU (R16 to R19).
#pragma once

#include <cstdint>

#include "cuda/runtime.h"
#include "numerics/epilogue.h"

namespace mmaemu::cuda {

// apply_epilogue, whose first step is what the processor's multiply-add does with +0 (R17).
__device__ inline uint32_t output_code(const Epilogue& epilogue, uint32_t acc) {
  const float y = __fmaf_rn(__uint_as_float(acc), __uint_as_float(epilogue.alpha_bits), 0.0f);
  const uint32_t bits = __float_as_uint(y);
  return round_scaled(epilogue, is_nan_fp32(bits) ? kFp32.canonical_nan : bits);
}

}  // namespace mmaemu::cuda
