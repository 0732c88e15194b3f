// The epilogue on a GPU (R16 to R19).
#pragma once

#include <cstdint>

#include "cuda/runtime.h"
#include "numerics/epilogue.h"

namespace mmaemu::cuda {

// apply_epilogue, whose first step is what the processor's multiply-add does with +0 (R17).
__device__ inline uint32_t output_code(const Epilogue& epilogue, uint32_t acc) {
  const float y = __fmaf_rn(__uint_as_float(acc), __uint_as_float(epilogue.alpha_bits), 0.0f);
  uint32_t bits = __float_as_uint(y);
  if (is_nan_fp32(bits)) bits = kFp32.canonical_nan;
  const FloatFormat& out = epilogue.out_format;
  if (out.bits() == 32) return bits;
  if (out.bits() == 16) return round_to_16_bits(out, bits);
  if (epilogue.has_scale_result) bits = multiply_fp32(bits, epilogue.scale_result_bits);
  return saturate_to_fp8(out, bits);
}

}  // namespace mmaemu::cuda
