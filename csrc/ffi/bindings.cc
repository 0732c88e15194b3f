// The Python module mmaemu_jax._native: the handlers as capsules, and what this build can run.

#include <nanobind/nanobind.h>

#include "cpu/dispatch.h"
#include "cpu/packed_codes.h"
#include "ffi/cpu_handlers.h"

namespace nb = nanobind;

namespace {

nb::capsule handler(XLA_FFI_Error* (*function)(XLA_FFI_CallFrame*)) {
  return nb::capsule(reinterpret_cast<void*>(function));
}

nb::dict registrations() {
  using namespace mmaemu::ffi_glue;
  nb::dict dict;
  dict[kGemmTarget] = handler(gemm_handler);
  dict[kProbeTarget] = handler(fp_control_probe_handler);
  return dict;
}

nb::list cpu_targets() {
  nb::list list;
  for (const mmaemu::cpu::TargetStatus& status : mmaemu::cpu::targets()) {
    list.append(nb::make_tuple(status.target->name, status.usable, status.why_not));
  }
  return list;
}

nb::dict cpu_features() {
  nb::dict dict;
  for (const mmaemu::cpu::CpuFeature& feature : mmaemu::cpu::cpu_features()) {
    dict[feature.name] = feature.present;
  }
  return dict;
}

// Whether the SIMD kernels run a model's chains themselves; else they hand it to the portable one.
bool simd_kernels_run(int nfma, int frac, int frac_out, int min_exp, bool late_c) {
  const mmaemu::InstructionModel model{nfma, frac, frac_out, min_exp, late_c};
  return mmaemu::cpu::runs_in_fp32(model, 16) || mmaemu::cpu::runs_in_fp32(model, 32);
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "XLA FFI handlers of mmaemu_jax; see mmaemu_jax/primitive.py.";
  m.def("registrations", &registrations, "FFI target name -> capsule of its CPU handler.");
  m.def("cpu_targets", &cpu_targets,
        "(name, usable here, why not) of every built kernel target, fastest first.");
  m.def("simd_kernels_run", &simd_kernels_run, "Whether SIMD kernels run this model themselves.");
  m.def("cpu_features", &cpu_features, "Instruction-set extension -> whether it is there.");
  m.attr("VERSION") = MMAEMU_VERSION;
  m.attr("SOURCE_DIGEST") = MMAEMU_SOURCE_DIGEST;  // tests compare it with the checkout's csrc
  m.attr("GEMM_TARGET") = mmaemu::ffi_glue::kGemmTarget;
  m.attr("PROBE_TARGET") = mmaemu::ffi_glue::kProbeTarget;
}
