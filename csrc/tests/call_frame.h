// A call of an FFI handler without XLA: what a call says as plain data, and the frame that XLA
// would make of it, with a runtime (errors, a thread pool) of its own.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "xla/ffi/api/c_api.h"

namespace mmaemu::testing {

struct Attribute;
using Attributes = std::vector<Attribute>;  // sorted by name, as XLA sorts them

using AttributeValue =
    std::variant<bool, int32_t, int64_t, float, std::string, std::vector<int64_t>, Attributes>;

struct Attribute {
  std::string name;
  AttributeValue value;
};

struct BufferSpec {
  int dtype = XLA_FFI_DataType_F32;
  std::vector<int64_t> dims;
  void* data = nullptr;
  bool is_buffer = true;  // false: an argument of a kind that the handler does not know
};

struct CallSpec {
  std::vector<BufferSpec> arguments;
  std::vector<BufferSpec> results;
  Attributes attributes;
  XLA_FFI_ExecutionStage stage = XLA_FFI_ExecutionStage_EXECUTE;
};

// One dictionary in the layout of the C API, and all that it points to.
class AttributeFrame {
 public:
  explicit AttributeFrame(const Attributes& attributes) {
    for (const Attribute& attribute : attributes) add(attribute);
    frame_.struct_size = XLA_FFI_Attrs_STRUCT_SIZE;
    frame_.size = static_cast<int64_t>(types_.size());
    frame_.types = types_.data();
    frame_.names = names_.data();
    frame_.attrs = values_.data();
  }
  AttributeFrame(const AttributeFrame&) = delete;
  AttributeFrame& operator=(const AttributeFrame&) = delete;

  XLA_FFI_Attrs& frame() { return frame_; }

 private:
  void add(const Attribute& attribute) {
    names_.push_back(
        &spans_.emplace_back(XLA_FFI_ByteSpan{attribute.name.data(), attribute.name.size()}));
    std::visit([this](const auto& value) { add_value(value); }, attribute.value);
  }

  void add_scalar(XLA_FFI_DataType type, const void* value) {
    types_.push_back(XLA_FFI_AttrType_SCALAR);
    values_.push_back(&scalars_.emplace_back(XLA_FFI_Scalar{type, const_cast<void*>(value)}));
  }
  void add_value(const bool& value) { add_scalar(XLA_FFI_DataType_PRED, &value); }
  void add_value(const int32_t& value) { add_scalar(XLA_FFI_DataType_S32, &value); }
  void add_value(const int64_t& value) { add_scalar(XLA_FFI_DataType_S64, &value); }
  void add_value(const float& value) { add_scalar(XLA_FFI_DataType_F32, &value); }
  void add_value(const std::string& value) {
    types_.push_back(XLA_FFI_AttrType_STRING);
    values_.push_back(&spans_.emplace_back(XLA_FFI_ByteSpan{value.data(), value.size()}));
  }
  void add_value(const std::vector<int64_t>& value) {
    types_.push_back(XLA_FFI_AttrType_ARRAY);
    values_.push_back(&arrays_.emplace_back(
        XLA_FFI_Array{XLA_FFI_DataType_S64, value.size(), const_cast<int64_t*>(value.data())}));
  }
  void add_value(const Attributes& value) {
    types_.push_back(XLA_FFI_AttrType_DICTIONARY);
    values_.push_back(&members_.emplace_back(std::make_unique<AttributeFrame>(value))->frame());
  }

  XLA_FFI_Attrs frame_{};
  std::vector<XLA_FFI_AttrType> types_;
  std::vector<XLA_FFI_ByteSpan*> names_;
  std::vector<void*> values_;
  std::deque<XLA_FFI_ByteSpan> spans_;  // deques, for addresses that stay
  std::deque<XLA_FFI_Scalar> scalars_;
  std::deque<XLA_FFI_Array> arrays_;
  std::deque<std::unique_ptr<AttributeFrame>> members_;
};

// The frame of a call, which must outlive it, for one call of a handler.
class CallFrame {
 public:
  CallFrame(const CallSpec& call, const XLA_FFI_Api& api, XLA_FFI_ExecutionContext* context)
      : attributes_(call.attributes) {
    frame_.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
    frame_.api = &api;
    frame_.ctx = context;
    frame_.stage = call.stage;
    for (const BufferSpec& spec : call.arguments) {
      argument_types_.push_back(spec.is_buffer ? XLA_FFI_ArgType_BUFFER : XLA_FFI_ArgType{});
      arguments_.push_back(buffer(spec));
    }
    for (const BufferSpec& spec : call.results) {
      result_types_.push_back(spec.is_buffer ? XLA_FFI_RetType_BUFFER : XLA_FFI_RetType{});
      results_.push_back(buffer(spec));
    }
    frame_.args = {XLA_FFI_Args_STRUCT_SIZE, nullptr, static_cast<int64_t>(arguments_.size()),
                   argument_types_.data(), arguments_.data()};
    frame_.rets = {XLA_FFI_Rets_STRUCT_SIZE, nullptr, static_cast<int64_t>(results_.size()),
                   result_types_.data(), results_.data()};
    frame_.attrs = attributes_.frame();
  }
  CallFrame(const CallFrame&) = delete;
  CallFrame& operator=(const CallFrame&) = delete;

  XLA_FFI_CallFrame* get() { return &frame_; }

 private:
  void* buffer(const BufferSpec& spec) {
    return &buffers_.emplace_back(XLA_FFI_Buffer{
        XLA_FFI_Buffer_STRUCT_SIZE, nullptr, static_cast<XLA_FFI_DataType>(spec.dtype), spec.data,
        static_cast<int64_t>(spec.dims.size()), const_cast<int64_t*>(spec.dims.data())});
  }

  XLA_FFI_CallFrame frame_{};
  AttributeFrame attributes_;
  std::deque<XLA_FFI_Buffer> buffers_;
  std::vector<XLA_FFI_ArgType> argument_types_;
  std::vector<XLA_FFI_RetType> result_types_;
  std::vector<void*> arguments_;
  std::vector<void*> results_;
};

}  // namespace mmaemu::testing
