// csrc/numerics as it stands, one output element per thread: every model, plan, format and c.
#pragma once

#include "cuda/gemm.h"
#include "cuda/runtime.h"
#include "numerics/specials.h"

namespace mmaemu::cuda {

inline constexpr int kPortableThreads = 128;

// The codes that meet in one output element; non-finite ones count as +0 (R14).
struct ElementProducts {
  FloatFormat fmt_a;
  FloatFormat fmt_b;
  const uint8_t* a;
  const uint8_t* b;
  int64_t b_stride;

  MMAEMU_HD Term operator()(int64_t k) const {
    return multiply_exact(fmt_a, decode_finite(fmt_a, a[k]), fmt_b,
                          decode_finite(fmt_b, b[k * b_stride]));
  }
  MMAEMU_HD SpecialValue special(int64_t length) const {
    SpecialValue value;
    for (int64_t k = 0; k < length; ++k) {
      value.add_product(decode(fmt_a, a[k]), decode(fmt_b, b[k * b_stride]));
    }
    return value;
  }
};

MMAEMU_HD inline ElementProducts products_of(const Gemm& g, int64_t batch, int64_t i, int64_t j) {
  return {g.fmt_a, g.fmt_b, g.a + g.offset(g.a_strides, batch) + i * g.k,
          g.b + g.offset(g.b_strides, batch) + j * g.b_stride_n, g.b_stride_k};
}

MMAEMU_HD inline uint32_t portable_element(const Gemm& g, int64_t batch, int64_t i, int64_t j) {
  if (g.k == 0 && g.c == nullptr) return 0;  // R15: no epilogue
  const ElementProducts products = products_of(g, batch, i, j);
  uint32_t c = g.c == nullptr ? 0 : g.c[g.offset(g.c_strides, batch) + i * g.n + j];
  SpecialValue special = products.special(g.k);
  special.add_accumulator(c);
  if (is_nan_fp32(c) || is_inf_fp32(c)) c = 0;
  const uint32_t acc = accumulate(g.model, g.plan, c, g.k, products);
  return apply_epilogue(g.epilogue(batch), special.patch(acc));
}

}  // namespace mmaemu::cuda
