// What a call of the GEMM handler means, or that it must be refused: the words of ffi/gemm_call.h
// again, by another method (sizes in 128 bits, attributes by name), and the bytes that it must
// write.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "cpu/dispatch.h"
#include "cpu/gemm.h"
#include "cpu/portable.h"
#include "tests/call_frame.h"
#include "tests/gemm_case.h"
#include "tests/naive_gemm.h"

namespace mmaemu::fuzz {

using testing::Attributes;
using testing::BufferSpec;
using testing::CallSpec;
using testing::Leading;

struct GemmReading {
  InstructionModel model{};
  AccumulationPlan plan{};
  testing::FormatPair formats{};
  FloatFormat out{};
  bool b_is_kn = false;
  Leading batch;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  BufferSpec a;
  BufferSpec b;
  BufferSpec scale_a;
  BufferSpec scale_b;
  std::optional<BufferSpec> scale_result;
  std::optional<BufferSpec> c;

  int64_t outputs() const { return testing::product(batch) * m * n; }
};

template <typename T>
const T* member(const Attributes& attributes, const char* name) {
  for (const testing::Attribute& attribute : attributes) {
    if (attribute.name == name) return std::get_if<T>(&attribute.value);
  }
  return nullptr;
}

inline std::optional<InstructionModel> read_model(const Attributes* model) {
  if (model == nullptr || model->size() != 5) return std::nullopt;
  const auto* nfma = member<int32_t>(*model, "nfma");
  const auto* frac = member<int32_t>(*model, "frac");
  const auto* frac_out = member<int32_t>(*model, "frac_out");
  const auto* min_exp = member<int32_t>(*model, "min_exp");
  const auto* late_c = member<bool>(*model, "late_c");
  if (!nfma || !frac || !frac_out || !min_exp || !late_c) return std::nullopt;
  const auto within = [](int64_t x, int64_t low, int64_t high) { return low <= x && x <= high; };
  const bool valid = within(*nfma, 1, 1024) && within(*frac, 1, 40) && within(*frac_out, 1, 23) &&
                     within(*min_exp, -1000, 127);
  if (!valid) return std::nullopt;
  return InstructionModel{*nfma, *frac, *frac_out, *min_exp, *late_c};
}

inline std::optional<AccumulationPlan> read_plan(const Attributes* plan) {
  if (plan == nullptr || plan->size() != 5) return std::nullopt;
  const auto* chunk_k = member<int64_t>(*plan, "chunk_k");
  const auto* splits = member<int64_t>(*plan, "splits");
  const auto* tile_k = member<int64_t>(*plan, "tile_k");
  const auto* interleaved = member<bool>(*plan, "interleaved");
  const auto* pairwise = member<bool>(*plan, "pairwise");
  if (!chunk_k || !splits || !tile_k || !interleaved || !pairwise) return std::nullopt;
  if (*chunk_k < 0 || *chunk_k > int64_t{1} << 40) return std::nullopt;
  if (*splits < 1 || *splits > 4096) return std::nullopt;
  if (*splits > 1 && (*tile_k < 1 || *tile_k > 1 << 30)) return std::nullopt;
  return AccumulationPlan{*chunk_k, *splits, *tile_k, *interleaved, *pairwise};
}

inline std::optional<FloatFormat> read_format(int dtype) {
  if (dtype == XLA_FFI_DataType_F8E4M3FN) return kE4M3;
  if (dtype == XLA_FFI_DataType_F8E5M2) return kE5M2;
  if (dtype == XLA_FFI_DataType_F32) return kFp32;
  if (dtype == XLA_FFI_DataType_BF16) return kBf16;
  if (dtype == XLA_FFI_DataType_F16) return kFp16;
  return std::nullopt;
}

// Bytes of a buffer whose elements have `width` bytes; nothing where a dimension is negative or
// the dimensions that are not zero span more than 2^60 bytes.
inline std::optional<int64_t> addressable_bytes(const BufferSpec& buffer, int64_t width) {
  __int128 span = width;
  bool empty = false;
  for (const int64_t dim : buffer.dims) {
    if (dim < 0) return std::nullopt;
    empty = empty || dim == 0;
    if (dim != 0) span *= dim;
    if (span > __int128{1} << 60) return std::nullopt;
  }
  return empty ? 0 : static_cast<int64_t>(span);
}

// The buffer has these trailing dimensions behind leading ones that are 1 or the batch's.
inline bool fits(const BufferSpec& buffer, const Leading& batch, const Leading& trailing) {
  const size_t leading = batch.size();
  if (buffer.dims.size() != leading + trailing.size()) return false;
  for (size_t d = 0; d < leading; ++d) {
    if (buffer.dims[d] != 1 && buffer.dims[d] != batch[d]) return false;
  }
  return std::equal(trailing.begin(), trailing.end(), buffer.dims.begin() + leading);
}

inline bool is_known_kernel(const std::string& name) {
  if (name == "auto") return true;
  for (const cpu::TargetStatus& status : cpu::targets()) {
    if (status.usable && name == status.target->name) return true;
  }
  return false;
}

struct Flags {
  bool has_scale_result = false;
  bool has_c = false;
};

inline bool read_attributes(const Attributes& attributes, GemmReading& reading, Flags& flags) {
  if (attributes.size() != 6) return false;
  const auto model = read_model(member<Attributes>(attributes, "model"));
  const auto plan = read_plan(member<Attributes>(attributes, "plan"));
  const auto* layout = member<std::string>(attributes, "b_layout");
  const auto* kernel = member<std::string>(attributes, "kernel");
  const auto* has_scale_result = member<bool>(attributes, "has_scale_result");
  const auto* has_c = member<bool>(attributes, "has_c");
  if (!model || !plan || !layout || !kernel || !has_scale_result || !has_c) return false;
  if ((*layout != "nk" && *layout != "kn") || !is_known_kernel(*kernel)) return false;
  if (*has_c && (plan->splits != 1 || plan->chunk_k != 0)) return false;
  reading.model = *model;
  reading.plan = *plan;
  reading.b_is_kn = *layout == "kn";
  flags = {*has_scale_result, *has_c};
  return true;
}

inline bool read_buffers(const CallSpec& call, const Flags& flags, GemmReading& r) {
  const auto is_buffer = [](const BufferSpec& buffer) { return buffer.is_buffer; };
  const size_t count = 4 + size_t{flags.has_scale_result} + size_t{flags.has_c};
  const auto& arguments = call.arguments;
  if (arguments.size() != count || call.results.size() != 1) return false;
  if (!std::all_of(arguments.begin(), arguments.end(), is_buffer)) return false;
  const BufferSpec& out = call.results[0];
  if (!out.is_buffer || out.dims.size() < 2) return false;
  r.a = arguments[0];
  r.b = arguments[1];
  r.scale_a = arguments[2];
  r.scale_b = arguments[3];
  if (flags.has_scale_result) r.scale_result = arguments[4];
  if (flags.has_c) r.c = arguments[count - 1];
  r.batch.assign(out.dims.begin(), out.dims.end() - 2);
  r.m = out.dims[out.dims.size() - 2];
  r.n = out.dims[out.dims.size() - 1];
  if (r.a.dims.size() != out.dims.size()) return false;
  r.k = r.a.dims.back();
  return true;
}

inline bool check_buffers(const CallSpec& call, GemmReading& r) {
  const auto a = read_format(r.a.dtype);
  const auto b = read_format(r.b.dtype);
  const auto out = read_format(call.results[0].dtype);
  if (!a || !b || !out || a->bits() != 8 || b->bits() != 8) return false;
  r.formats = {*a, *b};
  r.out = *out;
  bool ok = addressable_bytes(r.a, 1) && addressable_bytes(r.b, 1) &&
            addressable_bytes(call.results[0], out->bits() / 8);
  const auto check_fp32 = [&](const BufferSpec& buffer, const Leading& trailing) {
    ok = ok && buffer.dtype == XLA_FFI_DataType_F32 && addressable_bytes(buffer, 4) &&
         fits(buffer, r.batch, trailing);
  };
  check_fp32(r.scale_a, {});
  check_fp32(r.scale_b, {});
  if (r.scale_result) check_fp32(*r.scale_result, {});
  if (r.c) check_fp32(*r.c, {r.m, r.n});
  const Leading b_matrix = r.b_is_kn ? Leading{r.k, r.n} : Leading{r.n, r.k};
  return ok && fits(r.a, r.batch, {r.m, r.k}) && fits(r.b, r.batch, b_matrix);
}

// Nothing: the handler has to refuse the call.
inline std::optional<GemmReading> read_call(const CallSpec& call) {
  GemmReading reading;
  Flags flags;
  if (call.stage != XLA_FFI_ExecutionStage_EXECUTE ||
      !read_attributes(call.attributes, reading, flags) || !read_buffers(call, flags, reading) ||
      !check_buffers(call, reading)) {
    return std::nullopt;
  }
  return reading;
}

// Strides of an operand by its own leading dimensions, each 1 or the batch's.
inline cpu::BatchStrides strides(const GemmReading& r, const BufferSpec& operand, int64_t matrix) {
  return testing::strides_of({operand.dims.begin(), operand.dims.begin() + r.batch.size()}, matrix);
}

// Elements before the matrix of one batch element.
inline int64_t offset(const GemmReading& r, const BufferSpec& operand, int64_t matrix,
                      int64_t element) {
  const cpu::BatchStrides steps = strides(r, operand, matrix);
  int64_t at = 0;
  for (size_t d = r.batch.size(); d-- > 0;) {
    at += element % r.batch[d] * steps[d];
    element /= r.batch[d];
  }
  return at;
}

inline uint32_t fp32_at(const BufferSpec& operand, int64_t index) {
  uint32_t bits = 0;
  std::memcpy(&bits, static_cast<const uint8_t*>(operand.data) + index * 4, 4);
  return bits;
}

inline uint32_t naive_output_at(const GemmReading& r, int64_t element, int64_t i, int64_t j) {
  testing::Operands codes{r.formats, {}, {}};
  const auto* a = static_cast<const uint8_t*>(r.a.data) + offset(r, r.a, r.m * r.k, element);
  const auto* b = static_cast<const uint8_t*>(r.b.data) + offset(r, r.b, r.n * r.k, element);
  for (int64_t k = 0; k < r.k; ++k) {
    codes.a.push_back(a[i * r.k + k]);
    codes.b.push_back(b[r.b_is_kn ? k * r.n + j : j * r.k + k]);
  }
  const uint32_t c = !r.c ? 0 : fp32_at(*r.c, offset(r, *r.c, r.m * r.n, element) + i * r.n + j);
  testing::NaiveScales scales{fp32_at(r.scale_a, offset(r, r.scale_a, 1, element)),
                              fp32_at(r.scale_b, offset(r, r.scale_b, 1, element))};
  if (r.scale_result) {
    scales.result = fp32_at(*r.scale_result, offset(r, *r.scale_result, 1, element));
  }
  const uint32_t acc = testing::naive_element(r.model, r.plan, c, codes);
  return testing::naive_output(r.out, scales, acc);
}

// The bytes of the result, by the definition in doubles; for small calls.
inline std::vector<uint8_t> naive_bytes(const GemmReading& r) {
  const auto width = static_cast<size_t>(r.out.bits() / 8);
  std::vector<uint8_t> bytes(static_cast<size_t>(r.outputs()) * width);
  if (r.k == 0 && !r.c) return bytes;  // R15
  for (int64_t at = 0; at < r.outputs(); ++at) {
    const uint32_t code = naive_output_at(r, at / r.n / r.m, at / r.n % r.m, at % r.n);
    std::memcpy(bytes.data() + static_cast<size_t>(at) * width, &code, width);
  }
  return bytes;
}

// The same by the portable kernel.
inline std::vector<uint8_t> portable_bytes(const GemmReading& r) {
  std::vector<uint8_t> bytes(static_cast<size_t>(r.outputs() * (r.out.bits() / 8)));
  const auto fp32 = [](const BufferSpec& buffer) {
    return static_cast<const uint32_t*>(buffer.data);
  };
  cpu::GemmProblem p{r.model,
                     r.plan,
                     r.formats.a,
                     r.formats.b,
                     r.out,
                     r.batch,
                     r.m,
                     r.n,
                     r.k,
                     r.b_is_kn,
                     static_cast<const uint8_t*>(r.a.data),
                     static_cast<const uint8_t*>(r.b.data),
                     fp32(r.scale_a),
                     fp32(r.scale_b),
                     r.scale_result ? fp32(*r.scale_result) : nullptr,
                     r.c ? fp32(*r.c) : nullptr,
                     bytes.data(),
                     strides(r, r.a, r.m * r.k),
                     strides(r, r.b, r.n * r.k),
                     strides(r, r.scale_a, 1),
                     strides(r, r.scale_b, 1),
                     {},
                     {}};
  if (r.scale_result) p.scale_result_strides = strides(r, *r.scale_result, 1);
  if (r.c) p.c_strides = strides(r, *r.c, r.m * r.n);
  cpu::SerialPool serial;
  cpu::run_gemm(p, cpu::portable_target(), serial);
  return bytes;
}

}  // namespace mmaemu::fuzz
