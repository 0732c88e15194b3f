// A right call of the GEMM handler, to be made wrong or to be called often.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/call_frame.h"

namespace mmaemu::testing {

// A call of the handler with its memory: ones times ones, whose sums are known.
class OnesCall {
 public:
  OnesCall(int64_t m, int64_t n, int64_t k, const std::string& kernel)
      : a_(static_cast<size_t>(m * k), 0x38),
        b_(static_cast<size_t>(n * k), 0x38),
        out_(static_cast<size_t>(m * n)),
        sum_(static_cast<float>(k)) {
    call_.arguments = {{XLA_FFI_DataType_F8E4M3FN, {m, k}, a_.data()},
                       {XLA_FFI_DataType_F8E4M3FN, {n, k}, b_.data()},
                       {XLA_FFI_DataType_F32, {}, &one_},
                       {XLA_FFI_DataType_F32, {}, &one_}};
    call_.results = {{XLA_FFI_DataType_F32, {m, n}, out_.data()}};
    call_.attributes = {{"b_layout", std::string("nk")},
                        {"has_c", false},
                        {"has_scale_result", false},
                        {"kernel", kernel},
                        {"model", Attributes{{"frac", int32_t{13}},
                                             {"frac_out", int32_t{13}},
                                             {"late_c", false},
                                             {"min_exp", int32_t{-132}},
                                             {"nfma", int32_t{32}}}},
                        {"plan", Attributes{{"chunk_k", int64_t{0}},
                                            {"interleaved", false},
                                            {"pairwise", false},
                                            {"splits", int64_t{1}},
                                            {"tile_k", int64_t{0}}}}};
  }

  CallSpec& spec() { return call_; }
  void clear() { std::fill(out_.begin(), out_.end(), 0.0f); }
  bool is_right() const {
    for (const float y : out_) {
      if (y != sum_) return false;
    }
    return true;
  }

 private:
  float one_ = 1;
  std::vector<uint8_t> a_;
  std::vector<uint8_t> b_;
  std::vector<float> out_;
  float sum_;
  CallSpec call_;
};

}  // namespace mmaemu::testing
