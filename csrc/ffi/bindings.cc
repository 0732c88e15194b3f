// The Python module mmaemu_jax._native: the handlers as capsules, and what this build can run.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>

#include <array>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpu/dispatch.h"
#include "cpu/packed_codes.h"
#include "ffi/cpu_call.h"
#include "ffi/cpu_handlers.h"
#include "ffi/host_pool.h"

namespace nb = nanobind;
namespace ffi = xla::ffi;

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

using Bits = nb::ndarray<nb::device::cpu, nb::c_contig, nb::ro>;
using WritableBits = nb::ndarray<nb::device::cpu, nb::c_contig>;

ffi::DataType data_type(const std::string& name) {
  if (name == "float8_e4m3fn") return ffi::DataType::F8E4M3FN;
  if (name == "float8_e5m2") return ffi::DataType::F8E5M2;
  if (name == "float32") return ffi::DataType::F32;
  if (name == "bfloat16") return ffi::DataType::BF16;
  if (name == "float16") return ffi::DataType::F16;
  throw std::invalid_argument("mmaemu_jax: no operand may be " + name);
}

// A numpy array of bit patterns, described as XLA describes its buffers.
class HostBuffer {
 public:
  template <typename Array>  // of operands the kernels only read, whatever the type says
  HostBuffer(const Array& bits, const std::string& dtype) {
    for (size_t i = 0; i < bits.ndim(); ++i) dims_.push_back(bits.shape(i));
    const ffi::DataType type = data_type(dtype);
    if (bits.itemsize() != ffi::ByteWidth(type)) {
      throw std::invalid_argument("mmaemu_jax: the bits of " + dtype + " have another width");
    }
    buffer_.struct_size = XLA_FFI_Buffer_STRUCT_SIZE;
    buffer_.dtype = static_cast<XLA_FFI_DataType>(type);
    buffer_.data = const_cast<void*>(static_cast<const void*>(bits.data()));
    buffer_.rank = static_cast<int64_t>(dims_.size());
    buffer_.dims = dims_.data();
  }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  ffi::AnyBuffer view() const { return ffi::AnyBuffer(&buffer_); }

 private:
  std::vector<int64_t> dims_;
  XLA_FFI_Buffer buffer_{};
};

// One GEMM on numpy arrays, without XLA's runtime. `operands` are (bits, dtype name) in the order
// of gemm_call.h; `out` takes the result's bits.
void host_gemm(nb::list operands, WritableBits out, const std::string& out_dtype,
               std::array<int, 4> model, bool late_c, std::array<int64_t, 3> plan, bool interleaved,
               bool pairwise, const std::string& b_layout, const std::string& kernel,
               bool has_scale_result, bool has_c, int64_t threads) {
  if (operands.size() < 4) throw std::invalid_argument("mmaemu_jax: a GEMM has four operands");
  std::vector<std::unique_ptr<HostBuffer>> buffers;
  std::vector<ffi::AnyBuffer> views;
  for (nb::handle item : operands) {
    const auto pair = nb::cast<nb::tuple>(item);
    buffers.push_back(
        std::make_unique<HostBuffer>(nb::cast<Bits>(pair[0]), nb::cast<std::string>(pair[1])));
    views.push_back(buffers.back()->view());
  }
  const HostBuffer result(out, out_dtype);
  const mmaemu::ffi_glue::GemmAttributes attrs{{model[0], model[1], model[2], model[3], late_c},
                                               {plan[0], plan[1], plan[2], interleaved, pairwise},
                                               b_layout,
                                               kernel,
                                               has_scale_result,
                                               has_c};
  ffi::Error error;
  {
    const nb::gil_scoped_release released;
    mmaemu::ffi_glue::HostPool pool(threads);
    error = mmaemu::ffi_glue::call_on_cpu(
        pool,
        {views[0], views[1], views[2], views[3], {views.begin() + 4, views.end()}, result.view()},
        attrs);
  }
  if (error.errc() == ffi::ErrorCode::kResourceExhausted) throw std::bad_alloc();  // MemoryError
  if (error.failure()) throw std::invalid_argument(error.message());
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "XLA FFI handlers of mmaemu_jax; see mmaemu_jax/primitive.py.";
  m.def("registrations", &registrations, "FFI target name -> capsule of its CPU handler.");
  m.def("cpu_targets", &cpu_targets,
        "(name, usable here, why not) of every built kernel target, fastest first.");
  m.def("simd_kernels_run", &simd_kernels_run, "Whether SIMD kernels run this model themselves.");
  m.def("cpu_features", &cpu_features, "Instruction-set extension -> whether it is there.");
  m.def("host_gemm", &host_gemm, nb::arg("operands"), nb::arg("out"), nb::arg("out_dtype"),
        nb::arg("model"), nb::arg("late_c"), nb::arg("plan"), nb::arg("interleaved"),
        nb::arg("pairwise"), nb::arg("b_layout"), nb::arg("kernel"), nb::arg("has_scale_result"),
        nb::arg("has_c"), nb::arg("threads"),
        "One GEMM on numpy arrays of bits, without XLA's runtime; see mmaemu_jax/host.py.");
  m.attr("VERSION") = MMAEMU_VERSION;
  m.attr("SOURCE_DIGEST") = MMAEMU_SOURCE_DIGEST;  // tests compare it with the checkout's csrc
  m.attr("GEMM_TARGET") = mmaemu::ffi_glue::kGemmTarget;
  m.attr("PROBE_TARGET") = mmaemu::ffi_glue::kProbeTarget;
}
