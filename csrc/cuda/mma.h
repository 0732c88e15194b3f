// The tensor-core instructions, as functions of a warp.
#pragma once

#include <cstdint>

#include "cuda/runtime.h"

#if defined(MMAEMU_CUDA_ON_CPU)
#include "tests/sm90_on_cpu.h"
#else
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

// d += a b with FP8 operands: a 16 x 32, b 32 x 8; lane (group, pair) holds rows group and group +
// 8 of a and column group of b, at k = 4 pair .. 4 pair + 3 and 16 more.
template <bool kIsE5M2A, bool kIsE5M2B>
__device__ __forceinline__ void mma_fp8_16x8x32(float (&d)[4], const uint32_t (&a)[4],
                                                const uint32_t (&b)[2]) {
#define MMAEMU_MMA(format_a, format_b)                                                \
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f32." format_a "." format_b         \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
  if constexpr (kIsE5M2A && kIsE5M2B) MMAEMU_MMA("e5m2", "e5m2");
  if constexpr (kIsE5M2A && !kIsE5M2B) MMAEMU_MMA("e5m2", "e4m3");
  if constexpr (!kIsE5M2A && kIsE5M2B) MMAEMU_MMA("e4m3", "e5m2");
  if constexpr (!kIsE5M2A && !kIsE5M2B) MMAEMU_MMA("e4m3", "e4m3");
#undef MMAEMU_MMA
}

}  // namespace mmaemu::cuda
#endif
