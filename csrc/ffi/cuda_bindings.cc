// The Python module mmaemu_jax._native_cuda: the CUDA handler as a capsule, and what this build
// has.

#include <cuda_runtime_api.h>
#include <nanobind/nanobind.h>

#include "cuda/kernels.h"
#include "ffi/cuda_handlers.h"

namespace nb = nanobind;

namespace {

nb::dict registrations() {
  using namespace mmaemu::ffi_glue;
  nb::dict dict;
  dict[kGemmTarget] = nb::capsule(reinterpret_cast<void*>(cuda_gemm_handler));
  return dict;
}

nb::list kernels() {
  nb::list list;
  for (const mmaemu::cuda::Kernel& kernel : mmaemu::cuda::kernels()) {
    list.append(nb::make_tuple(kernel.name, kernel.what, kernel.experimental, kernel.capability,
                               kernel.exact_capability));
  }
  return list;
}

// (name, compute capability times ten) of every GPU; empty without a driver or a GPU.
nb::list devices() {
  nb::list list;
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) continue;
    list.append(nb::make_tuple(properties.name, 10 * properties.major + properties.minor,
                               properties.multiProcessorCount));
  }
  cudaGetLastError();
  return list;
}

}  // namespace

NB_MODULE(_native_cuda, m) {
  m.doc() = "The CUDA handler of mmaemu_jax; see mmaemu_jax/cuda.py.";
  m.def("registrations", &registrations, "FFI target name -> capsule of its CUDA handler.");
  m.def("kernels", &kernels,
        "(name, what, experimental, compute capability times ten, exactly that one) of every "
        "kernel, fastest first.");
  m.def("devices", &devices, "(name, compute capability times ten, SMs) of every GPU.");
  m.attr("ARCHITECTURES") = MMAEMU_CUDA_ARCHITECTURES;
  m.attr("SOURCE_DIGEST") = MMAEMU_CUDA_SOURCE_DIGEST;  // tests compare it with the checkout's csrc
}
