// Compiled where nvcc is present: csrc/numerics is host and device code. No kernel ships from here
// yet; one output element per thread is enough to instantiate every header.

#include "numerics/accumulate.h"
#include "numerics/epilogue.h"
#include "numerics/specials.h"

namespace mmaemu {

struct ProductAt {
  FloatFormat fmt_a;
  FloatFormat fmt_b;
  const uint8_t* a;
  const uint8_t* b;

  MMAEMU_HD Term operator()(int64_t k) const {
    return multiply_exact(fmt_a, decode(fmt_a, a[k]), fmt_b, decode(fmt_b, b[k]));
  }
};

__global__ void one_element(InstructionModel model, AccumulationPlan plan, ProductAt products,
                            int64_t k, Epilogue epilogue, uint32_t* out) {
  SpecialValue special;
  for (int64_t i = 0; i < k; ++i) {
    special.add_product(decode(products.fmt_a, products.a[i]),
                        decode(products.fmt_b, products.b[i]));
  }
  const uint32_t acc = accumulate(model, plan, 0, k, products);
  *out = apply_epilogue(epilogue, special.patch(acc));
}

}  // namespace mmaemu
