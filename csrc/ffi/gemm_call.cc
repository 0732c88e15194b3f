#include "ffi/gemm_call.h"

#include <new>
#include <optional>
#include <string>
#include <vector>

namespace mmaemu::ffi_glue {
namespace {

namespace ffi = xla::ffi;

std::optional<FloatFormat> format_of(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F8E4M3FN:
      return kE4M3;
    case ffi::DataType::F8E5M2:
      return kE5M2;
    case ffi::DataType::F32:
      return kFp32;
    case ffi::DataType::BF16:
      return kBf16;
    case ffi::DataType::F16:
      return kFp16;
    default:
      return std::nullopt;
  }
}

bool is_fp8(ffi::DataType type) {
  return type == ffi::DataType::F8E4M3FN || type == ffi::DataType::F8E5M2;
}

std::string text(ffi::Span<const int64_t> dims) {
  std::string s = "(";
  for (size_t i = 0; i < dims.size(); ++i) s += (i ? ", " : "") + std::to_string(dims[i]);
  return s + ")";
}

// Whether 64-bit arithmetic counts the buffer's bytes; no buffer of XLA's is as large as kMaxBytes.
bool is_addressable(ffi::AnyBuffer buffer, int64_t width) {
  int64_t limit = kMaxBytes / width;
  for (const int64_t dim : buffer.dimensions()) {
    if (dim < 0 || dim > limit) return false;
    if (dim != 0) limit /= dim;
  }
  return true;
}

ffi::Error check_size(const char* name, ffi::AnyBuffer buffer, const FloatFormat& format) {
  if (is_addressable(buffer, format.bits() / 8)) return ffi::Error::Success();
  return invalid(std::string(name) + " has shape " + text(buffer.dimensions()) +
                 ", which no memory holds");
}

// Strides over the leading dimensions `batch` of an operand whose matrix has `matrix` elements;
// nothing if its leading dimensions are not 1 or the output's.
std::optional<cpu::BatchStrides> batch_strides(ffi::Span<const int64_t> dims,
                                               const std::vector<int64_t>& batch, int64_t matrix) {
  cpu::BatchStrides strides(batch.size(), 0);
  int64_t stride = matrix;
  for (size_t d = batch.size(); d-- > 0;) {
    if (dims[d] != 1 && dims[d] != batch[d]) return std::nullopt;
    strides[d] = dims[d] == 1 ? 0 : stride;
    stride *= dims[d];
  }
  return strides;
}

// One operand: rank = leading dimensions + trailing ones, these equal to `trailing`.
ffi::Error check_operand(const char* name, ffi::AnyBuffer buffer, ffi::DataType type,
                         const std::vector<int64_t>& batch, const std::vector<int64_t>& trailing,
                         cpu::BatchStrides& strides) {
  const ffi::Span<const int64_t> dims = buffer.dimensions();
  if (buffer.element_type() != type) return invalid(std::string(name) + " has a wrong dtype");
  if (ffi::Error e = check_size(name, buffer, *format_of(type)); e.failure()) return e;
  bool ok = dims.size() == batch.size() + trailing.size();
  int64_t matrix = 1;
  for (size_t i = 0; ok && i < trailing.size(); ++i) {
    ok = dims[batch.size() + i] == trailing[i];
    matrix *= trailing[i];
  }
  std::optional<cpu::BatchStrides> found;
  if (ok) found = batch_strides(dims, batch, matrix);
  if (!found) {
    return invalid(std::string(name) + " has shape " + text(dims) +
                   ", which does not fit the output's shape");
  }
  strides = *found;
  return ffi::Error::Success();
}

ffi::Error check_attributes(const GemmAttributes& attrs) {
  if (!is_valid(attrs.model)) return invalid("the instruction model is out of its bounds");
  if (!is_valid(attrs.plan)) return invalid("the accumulation plan is out of its bounds");
  if (attrs.b_layout != "nk" && attrs.b_layout != "kn") {
    return invalid("b_layout must be nk or kn, got " + std::string(attrs.b_layout));
  }
  if (attrs.has_c && (attrs.plan.splits != 1 || attrs.plan.chunk_k != 0)) {
    return invalid("an initial accumulator needs the plan of one chain");
  }
  return ffi::Error::Success();
}

ffi::Error check_formats(ffi::AnyBuffer a, ffi::AnyBuffer b, ffi::AnyBuffer out,
                         cpu::GemmProblem& p) {
  if (!is_fp8(a.element_type()) || !is_fp8(b.element_type())) {
    return invalid("a and b must be float8_e4m3fn or float8_e5m2");
  }
  const std::optional<FloatFormat> fmt_out = format_of(out.element_type());
  if (!fmt_out) return invalid("the output dtype is not one of the five");
  p.fmt_a = *format_of(a.element_type());
  p.fmt_b = *format_of(b.element_type());
  p.fmt_out = *fmt_out;
  return ffi::Error::Success();
}

ffi::Error check_shapes(ffi::AnyBuffer a, ffi::AnyBuffer b, ffi::AnyBuffer out,
                        cpu::GemmProblem& p) {
  const ffi::Span<const int64_t> dims = out.dimensions();
  if (dims.size() < 2 || a.dimensions().size() != dims.size()) {
    return invalid("a has shape " + text(a.dimensions()) + " and the output " + text(dims) +
                   "; both need the same number of dimensions, two or more");
  }
  if (ffi::Error e = check_size("the output", out, p.fmt_out); e.failure()) return e;
  const size_t leading = dims.size() - 2;
  p.batch.assign(dims.begin(), dims.begin() + leading);
  p.m = dims[leading];
  p.n = dims[leading + 1];
  p.k = a.dimensions()[leading + 1];
  const std::vector<int64_t> b_matrix =
      p.b_is_kn ? std::vector<int64_t>{p.k, p.n} : std::vector<int64_t>{p.n, p.k};
  if (ffi::Error e = check_operand("a", a, a.element_type(), p.batch, {p.m, p.k}, p.a_strides);
      e.failure()) {
    return e;
  }
  return check_operand("b", b, b.element_type(), p.batch, b_matrix, p.b_strides);
}

const uint32_t* fp32_bits(ffi::AnyBuffer buffer) {
  return static_cast<const uint32_t*>(buffer.untyped_data());
}

// scale_result and c, in this order, where the attributes announce them.
ffi::Error take_optional_operands(const std::vector<ffi::AnyBuffer>& rest,
                                  const GemmAttributes& attrs, cpu::GemmProblem& p) {
  if (rest.size() != size_t{attrs.has_scale_result} + size_t{attrs.has_c}) {
    return invalid("wrong number of operands");
  }
  size_t index = 0;
  const auto take = [&](const char* name, const std::vector<int64_t>& trailing,
                        cpu::BatchStrides& strides, const uint32_t*& data) {
    const ffi::AnyBuffer buffer = rest[index++];
    ffi::Error e = check_operand(name, buffer, ffi::DataType::F32, p.batch, trailing, strides);
    if (e.success()) data = fp32_bits(buffer);
    return e;
  };
  if (attrs.has_scale_result) {
    ffi::Error e = take("scale_result", {}, p.scale_result_strides, p.scale_result);
    if (e.failure()) return e;
  }
  if (attrs.has_c) {
    ffi::Error e = take("c", {p.m, p.n}, p.c_strides, p.c);
    if (e.failure()) return e;
  }
  return ffi::Error::Success();
}

}  // namespace

ffi::Error invalid(const std::string& what) {
  return ffi::Error::InvalidArgument("mmaemu_jax: " + what);
}

XLA_FFI_Error* call_handler(const ffi::Ffi& handler, XLA_FFI_CallFrame* call_frame) {
  try {
    return handler.Call(call_frame);
  } catch (const std::bad_alloc&) {
    XLA_FFI_Error_Create_Args args{XLA_FFI_Error_Create_Args_STRUCT_SIZE, nullptr,
                                   "mmaemu_jax: out of memory",
                                   XLA_FFI_Error_Code_RESOURCE_EXHAUSTED};
    return call_frame->api->XLA_FFI_Error_Create(&args);
  }
}

ffi::Error take_rest(ffi::RemainingArgs remaining, std::vector<ffi::AnyBuffer>& rest) {
  for (size_t i = 0; i < remaining.size(); ++i) {
    auto buffer = remaining.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) return buffer.error();
    rest.push_back(*buffer);
  }
  return ffi::Error::Success();
}

ffi::Error make_problem(const GemmOperands& operands, const GemmAttributes& attrs,
                        cpu::GemmProblem& p) {
  const auto& [a, b, scale_a, scale_b, rest, out] = operands;
  p.model = attrs.model;
  p.plan = attrs.plan;
  p.b_is_kn = attrs.b_layout == "kn";
  if (ffi::Error e = check_attributes(attrs); e.failure()) return e;
  if (ffi::Error e = check_formats(a, b, out, p); e.failure()) return e;
  if (ffi::Error e = check_shapes(a, b, out, p); e.failure()) return e;
  const auto scale = [&p](const char* name, ffi::AnyBuffer buffer, cpu::BatchStrides& strides) {
    return check_operand(name, buffer, ffi::DataType::F32, p.batch, {}, strides);
  };
  if (ffi::Error e = scale("scale_a", scale_a, p.scale_a_strides); e.failure()) return e;
  if (ffi::Error e = scale("scale_b", scale_b, p.scale_b_strides); e.failure()) return e;
  p.a = static_cast<const uint8_t*>(a.untyped_data());
  p.b = static_cast<const uint8_t*>(b.untyped_data());
  p.scale_a = fp32_bits(scale_a);
  p.scale_b = fp32_bits(scale_b);
  p.out = out.untyped_data();
  return take_optional_operands(rest, attrs, p);
}

}  // namespace mmaemu::ffi_glue
