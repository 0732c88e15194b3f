// A GEMM that owns its operands, and its output bytes on a target.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "cpu/gemm.h"
#include "tests/check.h"
#include "tests/models.h"
#include "tests/random.h"

namespace mmaemu::testing {

// How many leading dimensions an operand has of its own; a 1 broadcasts.
using Leading = std::vector<int64_t>;

inline int64_t product(const Leading& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

// Strides of an operand whose leading dimensions are `dims`, each 1 or the batch's.
inline cpu::BatchStrides strides_of(const Leading& dims, int64_t matrix) {
  cpu::BatchStrides strides(dims.size());
  for (size_t d = dims.size(); d-- > 0;) {
    strides[d] = dims[d] == 1 ? 0 : matrix;
    matrix *= dims[d];
  }
  return strides;
}

struct GemmCase {
  InstructionModel model = kEarly32;
  AccumulationPlan plan{0, 1, 0, false, false};
  FormatPair formats = kFormatPairs[0];
  FloatFormat out = kFp32;
  int64_t m = 1;
  int64_t n = 1;
  int64_t k = 1;
  bool b_is_kn = false;
  Leading batch;
  Leading batch_a;  // of a, scale_a
  Leading batch_b;  // of b, scale_b
  std::vector<uint8_t> a;
  std::vector<uint8_t> b;
  std::vector<uint32_t> scale_a{0x3F800000u};
  std::vector<uint32_t> scale_b{0x3F800000u};
  std::vector<uint32_t> scale_result;  // one per batch element, or none
  std::vector<uint32_t> c;             // [*batch, M, N], or none

  void set_shape(int64_t rows, int64_t columns, int64_t depth) {
    m = rows;
    n = columns;
    k = depth;
  }

  // The code of A at (i, index) and of B at (index, j) of the first batch element.
  uint8_t a_at(int64_t i, int64_t index) const { return a[static_cast<size_t>(i * k + index)]; }
  uint8_t b_at(int64_t index, int64_t j) const {
    return b[static_cast<size_t>(b_is_kn ? index * n + j : j * k + index)];
  }

  cpu::GemmProblem problem(void* output) const {
    cpu::GemmProblem p{};
    p.model = model;
    p.plan = plan;
    p.fmt_a = formats.a;
    p.fmt_b = formats.b;
    p.fmt_out = out;
    p.batch = batch;
    p.m = m;
    p.n = n;
    p.k = k;
    p.b_is_kn = b_is_kn;
    p.a = a.data();
    p.b = b.data();
    p.scale_a = scale_a.data();
    p.scale_b = scale_b.data();
    p.scale_result = scale_result.empty() ? nullptr : scale_result.data();
    p.c = c.empty() ? nullptr : c.data();
    p.out = output;
    p.a_strides = strides_of(batch_a, m * k);
    p.b_strides = strides_of(batch_b, k * n);
    p.scale_a_strides = strides_of(batch_a, 1);
    p.scale_b_strides = strides_of(batch_b, 1);
    p.scale_result_strides = strides_of(batch, 1);
    p.c_strides = strides_of(batch, m * n);
    return p;
  }

  std::string text() const {
    std::string s = std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k);
    s += " formats " + std::to_string(formats.a.mantissa_bits) +
         std::to_string(formats.b.mantissa_bits);
    s += b_is_kn ? " [K,N]" : " [N,K]";
    s += " nfma " + std::to_string(model.nfma) + (model.late_c ? " late" : "");
    s += " chunk " + std::to_string(plan.chunk_k) + " splits " + std::to_string(plan.splits);
    s += " tile " + std::to_string(plan.tile_k) + (plan.interleaved ? " interleaved" : "");
    s += (plan.pairwise ? " pairwise" : "");
    s += " out " + std::to_string(out.bits()) + "/" + std::to_string(out.mantissa_bits);
    s += " batch " + std::to_string(product(batch));
    return s;
  }
};

// The output bytes that run(uint8_t* out) writes. They start as `fill`, and so do guard bytes
// around them, which must survive.
template <typename Run>
std::vector<uint8_t> guarded_output(const GemmCase& gemm, const char* name, uint8_t fill,
                                    const Run& run) {
  constexpr size_t kGuard = 64;
  const auto size =
      static_cast<size_t>(product(gemm.batch) * gemm.m * gemm.n * (gemm.out.bits() / 8));
  std::vector<uint8_t> bytes(size + 2 * kGuard, fill);
  run(bytes.data() + kGuard);
  for (size_t i = 0; i < kGuard; ++i) {
    const bool intact = bytes[i] == fill && bytes[kGuard + size + i] == fill;
    if (!intact) MMAEMU_CHECK(intact, name, gemm.text(), i);
  }
  return {bytes.begin() + kGuard, bytes.end() - kGuard};
}

// The output bytes of a kernel of the processor.
inline std::vector<uint8_t> run_on(const GemmCase& gemm, const cpu::KernelTarget& target,
                                   cpu::TaskPool& pool, uint8_t fill = 0xA5) {
  return guarded_output(gemm, target.name, fill,
                        [&](uint8_t* out) { cpu::run_gemm(gemm.problem(out), target, pool); });
}

// The same for fp32 outputs, as bits.
inline std::vector<uint32_t> run_fp32(const GemmCase& gemm, const cpu::KernelTarget& target,
                                      cpu::TaskPool& pool) {
  const std::vector<uint8_t> bytes = run_on(gemm, target, pool);
  std::vector<uint32_t> words(bytes.size() / 4);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

// Checks that `actual`, of the kernel `name`, is `expected`; reports the first difference.
template <typename T>
void check_equal(const char* name, const GemmCase& gemm, const std::vector<T>& expected,
                 const std::vector<T>& actual) {
  size_t at = 0;
  while (at < expected.size() && expected[at] == actual[at]) ++at;
  MMAEMU_CHECK(at == expected.size(), name, gemm.text(), at, expected[at], actual[at]);
}

}  // namespace mmaemu::testing
