// Calls of the GEMM handler from a fuzzer's bytes: a right one, then up to four things wrong with
// it (or merely different).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cpu/dispatch.h"
#include "fuzz/draw.h"
#include "fuzz/input.h"
#include "tests/call_frame.h"
#include "tests/gemm_case.h"

namespace mmaemu::fuzz {

using testing::Attribute;
using testing::Attributes;
using testing::AttributeValue;
using testing::BufferSpec;
using testing::CallSpec;
using testing::Leading;

inline constexpr std::array<int64_t, 24> kSizes{
    1, 2, 3, 5, 0, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40, 63, 64, 65, 66, 100, 127, 128, 129, 200};
inline constexpr std::array<int64_t, 8> kBatchSizes{1, 1, 2, 3, 2, 1, 4, 0};
inline constexpr std::array<int, 5> kOutputTypes{XLA_FFI_DataType_F32, XLA_FFI_DataType_BF16,
                                                 XLA_FFI_DataType_F16, XLA_FFI_DataType_F8E4M3FN,
                                                 XLA_FFI_DataType_F8E5M2};

inline int draw_fp8(Input& input) {
  return input.flag() ? XLA_FFI_DataType_F8E4M3FN : XLA_FFI_DataType_F8E5M2;
}

// The batch's leading dimensions, each replaced by 1 where a byte says so, then `trailing`.
inline std::vector<int64_t> draw_dims(Input& input, const Leading& batch, const Leading& trailing) {
  std::vector<int64_t> dims = batch;
  for (int64_t& dim : dims) dim = input.one_in(3) ? 1 : dim;
  dims.insert(dims.end(), trailing.begin(), trailing.end());
  return dims;
}

inline std::string draw_kernel(Input& input) {
  const auto& targets = cpu::targets();
  const cpu::TargetStatus& status = input.pick(targets);
  return status.usable && input.flag() ? status.target->name : "auto";
}

inline Attributes draw_attributes(Input& input) {
  const InstructionModel model = draw_valid_model(input, 64);
  const bool has_c = input.one_in(4);
  constexpr AccumulationPlan kOneChain{0, 1, 0, false, false};  // what c needs
  const AccumulationPlan plan = has_c && !input.one_in(4) ? kOneChain : draw_valid_plan(input);
  return {{"b_layout", std::string(input.flag() ? "kn" : "nk")},
          {"has_c", has_c},
          {"has_scale_result", input.flag()},
          {"kernel", draw_kernel(input)},
          {"model", Attributes{{"frac", model.frac},
                               {"frac_out", model.frac_out},
                               {"late_c", model.late_c},
                               {"min_exp", model.min_exp},
                               {"nfma", model.nfma}}},
          {"plan", Attributes{{"chunk_k", plan.chunk_k},
                              {"interleaved", plan.interleaved},
                              {"pairwise", plan.pairwise},
                              {"splits", plan.splits},
                              {"tile_k", plan.tile_k}}}};
}

inline CallSpec draw_right_call(Input& input) {
  CallSpec call;
  call.attributes = draw_attributes(input);
  const auto is_set = [&](size_t index) { return std::get<bool>(call.attributes[index].value); };
  const bool is_kn = std::get<std::string>(call.attributes[0].value) == "kn";
  Leading batch;
  for (int64_t rank = input.below(8) - 4; rank > 0; --rank)
    batch.push_back(input.pick(kBatchSizes));
  const int64_t m = input.pick(kSizes);
  const int64_t n = input.pick(kSizes);
  const int64_t k = input.flag() ? input.pick(kSizes) : input.below(700);
  const auto operand = [&](int dtype, const Leading& trailing) {
    call.arguments.push_back({dtype, draw_dims(input, batch, trailing)});
  };
  operand(draw_fp8(input), {m, k});
  operand(draw_fp8(input), is_kn ? Leading{k, n} : Leading{n, k});
  operand(XLA_FFI_DataType_F32, {});
  operand(XLA_FFI_DataType_F32, {});
  if (is_set(2)) operand(XLA_FFI_DataType_F32, {});
  if (is_set(1)) operand(XLA_FFI_DataType_F32, {m, n});
  std::vector<int64_t> dims = batch;
  dims.insert(dims.end(), {m, n});
  call.results.push_back({input.pick(kOutputTypes), dims});
  return call;
}

inline AttributeValue draw_value(Input& input) {
  switch (input.below(8)) {
    case 0:
      return input.flag();
    case 1:
      return static_cast<int32_t>(input.pick(kHardNumbers));
    case 2:
      return input.pick(kHardNumbers);
    case 3:
      return 1.0f;
    case 4:
      return std::string(static_cast<size_t>(input.below(40)), static_cast<char>(input.byte()));
    case 5:
      return std::vector<int64_t>(static_cast<size_t>(input.below(9)), 32);
    case 6:
      return Attributes{};
    default:
      return static_cast<int32_t>(input.word());
  }
}

// The top dictionary, or the model's or the plan's.
inline Attributes& draw_dictionary(Input& input, CallSpec& call) {
  Attribute& attribute = call.attributes[static_cast<size_t>(
      input.below(static_cast<int64_t>(call.attributes.size())))];
  auto* inner = std::get_if<Attributes>(&attribute.value);
  return inner != nullptr && !inner->empty() ? *inner : call.attributes;
}

inline void change_attributes(Input& input, CallSpec& call) {
  if (call.attributes.empty()) return;
  Attributes& attributes = draw_dictionary(input, call);
  const auto at = input.below(static_cast<int64_t>(attributes.size()));
  Attribute& attribute = attributes[static_cast<size_t>(at)];
  switch (input.below(5)) {
    case 0:
      attributes.erase(attributes.begin() + at);
      break;
    case 1:  // sorts last
      attributes.push_back({"z", draw_value(input)});
      break;
    case 2:  // keeps the order
      attribute.name += "_";
      break;
    case 3:  // another value of the same type
      if (auto* number = std::get_if<int32_t>(&attribute.value)) {
        *number = static_cast<int32_t>(input.pick(kHardNumbers));
      } else if (auto* wide = std::get_if<int64_t>(&attribute.value)) {
        *wide = input.pick(kHardNumbers);
      } else if (auto* flag = std::get_if<bool>(&attribute.value)) {
        *flag = !*flag;
      } else if (auto* text = std::get_if<std::string>(&attribute.value)) {
        *text = std::string(input.flag() ? "kn" : "scalar");
      }
      break;
    default:
      attribute.value = draw_value(input);
  }
}

inline void change_dims(Input& input, BufferSpec& buffer) {
  const auto rank = static_cast<int64_t>(buffer.dims.size());
  switch (input.below(4)) {
    case 0:
      buffer.dims.push_back(input.pick(kSizes));
      break;
    case 1:
      if (rank > 0) buffer.dims.pop_back();
      break;
    case 2:
      if (rank > 0) buffer.dims[static_cast<size_t>(input.below(rank))] = input.pick(kHardNumbers);
      break;
    default:
      buffer.dims.insert(buffer.dims.begin(), input.pick(kBatchSizes));
  }
}

// One size, everywhere where it stands: shapes that agree with each other, however large.
inline void replace_size(Input& input, CallSpec& call) {
  if (call.results.empty() || call.results[0].dims.empty()) return;
  const std::vector<int64_t>& from =
      input.flag() || call.arguments.empty() ? call.results[0].dims : call.arguments[0].dims;
  if (from.empty()) return;
  const int64_t before = input.pick(from);
  const int64_t after = input.pick(kHardNumbers);
  const auto replace = [&](BufferSpec& buffer) {
    for (int64_t& dim : buffer.dims) dim = dim == before ? after : dim;
  };
  for (BufferSpec& buffer : call.arguments) replace(buffer);
  for (BufferSpec& buffer : call.results) replace(buffer);
}

inline void change_buffers(Input& input, CallSpec& call, std::vector<BufferSpec>& list) {
  const auto count = static_cast<int64_t>(list.size());
  if (count == 0) return;
  BufferSpec& buffer = list[static_cast<size_t>(input.below(count))];
  switch (input.below(7)) {
    case 0:  // beyond the enumerators, too: a newer XLA has more
      buffer.dtype = static_cast<int>(input.below(64));
      break;
    case 1:
      change_dims(input, buffer);
      break;
    case 2:
      list.push_back(BufferSpec(buffer));
      break;
    case 3:
      list.pop_back();
      break;
    case 4:
      std::swap(buffer, list.back());
      break;
    case 5:
      buffer.is_buffer = false;
      break;
    default:
      replace_size(input, call);
  }
}

inline CallSpec draw_call(Input& input) {
  int64_t changes = input.below(8) - 3;
  CallSpec call = draw_right_call(input);
  for (; changes > 0; --changes) {
    switch (input.below(8)) {
      case 0:
      case 1:
      case 2:
        change_attributes(input, call);
        break;
      case 3:
        change_buffers(input, call, call.results);
        break;
      case 4:
        replace_size(input, call);
        break;
      case 5:
        call.stage = static_cast<XLA_FFI_ExecutionStage>(input.below(4));
        break;
      default:
        change_buffers(input, call, call.arguments);
    }
  }
  return call;
}

}  // namespace mmaemu::fuzz
