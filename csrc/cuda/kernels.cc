#include "cuda/kernels.h"

namespace mmaemu::cuda {
namespace {

bool runs_everything(const Gemm&) { return true; }

}  // namespace

const std::vector<Kernel>& kernels() {
  static const std::vector<Kernel> kKernels{
      {"wgmma", "FP8 wgmma of compute capability 9.0, which is the model", true, 90, true,
       runs_wgmma, launch_wgmma},
#if !defined(MMAEMU_CUDA_NO_MMA_SYNC)
      {"mma_sync", "FP8 mma.sync of compute capability 8.9, which is the model", true, 89, true,
       runs_mma_sync, launch_mma_sync},
#endif
      {"ieee", "fp32 multiply-adds toward zero", false, 80, false, runs_ieee, launch_ieee},
      {"portable", "the integer definition, one thread per element", false, 0, false,
       runs_everything, launch_portable},
  };
  return kKernels;
}

const Kernel* find_kernel(std::string_view name) {
  for (const Kernel& kernel : kernels()) {
    if (name == kernel.name) return &kernel;
  }
  return nullptr;
}

bool runs_on(const Kernel& kernel, int capability) {
  return kernel.exact_capability ? capability == kernel.capability
                                 : capability >= kernel.capability;
}

const Kernel* choose_kernel(std::string_view name, int capability, const Gemm& gemm) {
  if (name == "auto") {
    for (const Kernel& kernel : kernels()) {
      if (!kernel.experimental && runs_on(kernel, capability) && kernel.runs(gemm)) return &kernel;
    }
    return nullptr;
  }
  const Kernel* kernel = find_kernel(name);
  if (kernel == nullptr || !runs_on(*kernel, capability)) return nullptr;
  return kernel->runs(gemm) ? kernel : &kernels().back();
}

}  // namespace mmaemu::cuda
