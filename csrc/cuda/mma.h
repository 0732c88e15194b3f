// The tensor-core instructions, as functions of a warp.
#pragma once

#include <cstdint>

#include "cuda/runtime.h"

#if !defined(MMAEMU_CUDA_ON_CPU)
namespace mmaemu::cuda {

// d += a b with bf16 operands: a 16 x 8, b 8 x 8; lane (group, pair) holds rows group and group + 8
// of a and column group of b, at k = 2 pair and 2 pair + 1.
__device__ __forceinline__ void mma_bf16_16x8x8(float (&d)[4], const uint32_t (&a)[2], uint32_t b) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b));
}

}  // namespace mmaemu::cuda
#endif
