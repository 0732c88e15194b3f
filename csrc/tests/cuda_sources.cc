// The CUDA kernels' own sources, compiled as C++ for cuda_on_cpu.h.

#include "cuda/ieee_kernel.cu"
#include "cuda/mma_sync_kernel.cu"
#include "cuda/portable_kernel.cu"
#include "cuda/wgmma_kernel.cu"
