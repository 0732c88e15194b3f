// The instructions of compute capability 9.0a that the wgmma kernel is made of: tensor memory
// access, barriers in shared memory, warpgroup multiply-adds. One function each;
// csrc/tests/sm90_on_cpu.h has them for the CPU.
#pragma once

#include <cstdint>

#include "cuda/runtime.h"

#if defined(MMAEMU_CUDA_ON_CPU)
#include "tests/sm90_on_cpu.h"
#else
#include <cuda.h>

// Host code and other architectures parse these functions, and must not meet the instructions.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define MMAEMU_SM90A(...) __VA_ARGS__
#else
#define MMAEMU_SM90A(...)
#endif

namespace mmaemu::cuda {

using OperandMap = CUtensorMap;

// Codes [lines, depth], `line_stride` bytes apart (a multiple of 16), read in boxes of `box_lines`
// lines and 128 codes with 128-byte swizzling; what lies outside reads as 0.
inline cudaError_t make_operand_map(OperandMap& map, const uint8_t* codes, int64_t lines,
                                    int64_t depth, int64_t line_stride, int box_lines) {
  using Encode =
      CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                   const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                   CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  void* found = nullptr;
  cudaDriverEntryPointQueryResult query{};
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                             12000, cudaEnableDefault, &query);
#else
  const cudaError_t error =
      cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &query);
#endif
  if (error != cudaSuccess) return error;
  if (query != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
  const cuuint64_t dims[2] = {static_cast<cuuint64_t>(depth), static_cast<cuuint64_t>(lines)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(line_stride)};
  const cuuint32_t box[2] = {128, static_cast<cuuint32_t>(box_lines)};
  const cuuint32_t steps[2] = {1, 1};
  const CUresult result = reinterpret_cast<Encode>(found)(
      &map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<uint8_t*>(codes), dims, strides, box,
      steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

__device__ __forceinline__ uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// A barrier of `arrivals` arrivals and of announced bytes, used over and over; a phase is 0, 1,
// 0...
__device__ __forceinline__ void barrier_init(uint64_t* barrier, int arrivals) {
  MMAEMU_SM90A(
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                   "r"(arrivals) : "memory"));
}
// Makes the barriers seen by the copy engine; then a block-wide barrier.
__device__ __forceinline__ void barriers_ready() {
  MMAEMU_SM90A(asm volatile("fence.mbarrier_init.release.cluster;" :: : "memory"));
  MMAEMU_SM90A(asm volatile("fence.proxy.async.shared::cta;" :: : "memory"));
  __syncthreads();
}
__device__ __forceinline__ void barrier_arrive(uint64_t* barrier) {
  MMAEMU_SM90A(asm volatile(
      "mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory"));
}
__device__ __forceinline__ void barrier_expect(uint64_t* barrier, uint32_t bytes) {
  MMAEMU_SM90A(asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes) : "memory"));
}
// Returns once the phase has ended.
__device__ __forceinline__ void barrier_wait(uint64_t* barrier, uint32_t phase) {
  MMAEMU_SM90A(
      asm volatile("{\n"
                   ".reg .pred done;\n"
                   "WAIT: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                   "@done bra DONE;\n"
                   "bra WAIT;\n"
                   "DONE:\n"
                   "}\n" ::"r"(shared_address(barrier)),
                   "r"(phase) : "memory"));
}

// Copies the box whose first code is (line, k) and reports its bytes to the barrier.
__device__ __forceinline__ void copy_box(void* to, const OperandMap& map, int64_t line, int64_t k,
                                         uint64_t* barrier) {
  MMAEMU_SM90A(
      asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                   "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(to)),
                   "l"(reinterpret_cast<uint64_t>(&map)), "r"(static_cast<int>(k)),
                   "r"(static_cast<int>(line)), "r"(shared_address(barrier)) : "memory"));
}

// A barrier of `threads` threads of the block; 0 is __syncthreads'.
__device__ __forceinline__ void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

template <int kRegisters>
__device__ __forceinline__ void give_registers_up() {
  MMAEMU_SM90A(asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters)));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  MMAEMU_SM90A(asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters)));
}

// The accumulators are in registers again when these return.
__device__ __forceinline__ void wgmma_begin() {
  MMAEMU_SM90A(asm volatile("wgmma.fence.sync.aligned;" :: : "memory"));
}
__device__ __forceinline__ void wgmma_commit() {
  MMAEMU_SM90A(asm volatile("wgmma.commit_group.sync.aligned;" :: : "memory"));
}
template <int kGroupsLeft>
__device__ __forceinline__ void wgmma_wait() {
  MMAEMU_SM90A(asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroupsLeft) : "memory"));
}

#define MMAEMU_REGISTERS_64                                                           \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "  \
  "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "  \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
#define MMAEMU_REGISTERS_128                                                             \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "    \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "     \
  "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "     \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, "     \
  "%66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "     \
  "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, "     \
  "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "   \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, " \
  "%126, %127}, "
#define MMAEMU_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define MMAEMU_D16(i) MMAEMU_D4(i), MMAEMU_D4(i + 4), MMAEMU_D4(i + 8), MMAEMU_D4(i + 12)
#define MMAEMU_D64(i) MMAEMU_D16(i), MMAEMU_D16(i + 16), MMAEMU_D16(i + 32), MMAEMU_D16(i + 48)

// wgmma m64nNk32 on two shared-memory descriptors; the accumulator takes part if `keep`.
#define MMAEMU_WGMMA(n, a_format, b_format, list, outputs, in_a, in_b, in_keep)                    \
  MMAEMU_SM90A(asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " in_keep ", 0;\n"             \
                            "wgmma.mma_async.sync.aligned.m64n" n "k32.f32." a_format "." b_format \
                            " " list in_a ", " in_b ", keep, 1, 1;\n}\n" : outputs : "l"(a),       \
                            "l"(b), "r"(keep)))
#define MMAEMU_WGMMA_128(a_format, b_format)                                                    \
  MMAEMU_WGMMA("128", a_format, b_format, MMAEMU_REGISTERS_64, MMAEMU_OUTPUTS_64, "%64", "%65", \
               "%66")
#define MMAEMU_WGMMA_256(a_format, b_format)                                                \
  MMAEMU_WGMMA("256", a_format, b_format, MMAEMU_REGISTERS_128, MMAEMU_OUTPUTS_128, "%128", \
               "%129", "%130")
#define MMAEMU_OUTPUTS_64 MMAEMU_D64(0)
#define MMAEMU_OUTPUTS_128 MMAEMU_D64(0), MMAEMU_D64(64)

// d (64 x kColumns per warpgroup, kColumns / 2 registers per thread) = a b, plus d if `keep`. a and
// b are descriptors of 64 and kColumns lines of 32 codes.
template <int kColumns, bool kIsE5M2A, bool kIsE5M2B>
__device__ __forceinline__ void wgmma(float (&d)[kColumns / 2], uint64_t a, uint64_t b, int keep) {
  static_assert(kColumns == 128 || kColumns == 256);
  if constexpr (kColumns == 128) {
    if constexpr (kIsE5M2A && kIsE5M2B) MMAEMU_WGMMA_128("e5m2", "e5m2");
    if constexpr (kIsE5M2A && !kIsE5M2B) MMAEMU_WGMMA_128("e5m2", "e4m3");
    if constexpr (!kIsE5M2A && kIsE5M2B) MMAEMU_WGMMA_128("e4m3", "e5m2");
    if constexpr (!kIsE5M2A && !kIsE5M2B) MMAEMU_WGMMA_128("e4m3", "e4m3");
  } else {
    if constexpr (kIsE5M2A && kIsE5M2B) MMAEMU_WGMMA_256("e5m2", "e5m2");
    if constexpr (kIsE5M2A && !kIsE5M2B) MMAEMU_WGMMA_256("e5m2", "e4m3");
    if constexpr (!kIsE5M2A && kIsE5M2B) MMAEMU_WGMMA_256("e4m3", "e5m2");
    if constexpr (!kIsE5M2A && !kIsE5M2B) MMAEMU_WGMMA_256("e4m3", "e4m3");
  }
}

}  // namespace mmaemu::cuda
#endif
