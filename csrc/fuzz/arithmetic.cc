// The arithmetic under the plans, on any numbers: which models are valid, one block step (R3 to
// R8), the fp32 operations, and the epilogue (R16 to R19), against doubles and the processor.

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cpu/ieee_env.h"
#include "fuzz/draw.h"
#include "fuzz/fail.h"
#include "fuzz/input.h"
#include "fuzz/targets.h"
#include "numerics/block_fma.h"
#include "numerics/epilogue.h"
#include "tests/naive_gemm.h"

namespace mmaemu::fuzz {
namespace {

int32_t draw_field(Input& input) {
  return static_cast<int32_t>(input.flag() ? input.pick(kHardNumbers) : input.between(-4, 60));
}

void check_validity(Input& input) {
  const InstructionModel model{draw_field(input), draw_field(input), draw_field(input),
                               static_cast<int32_t>(input.between(-1200, 200)), input.flag()};
  const auto within = [](int64_t x, int64_t low, int64_t high) { return low <= x && x <= high; };
  const bool expected = within(model.nfma, 1, 1024) && within(model.frac, 1, 40) &&
                        within(model.frac_out, 1, 23) && within(model.min_exp, -1000, 127);
  MMAEMU_FUZZ_CHECK(is_valid(model) == expected, model.nfma, model.frac, model.frac_out,
                    model.min_exp);
}

void check_block(Input& input) {
  const InstructionModel model = draw_valid_model(input, 1024);
  const testing::FormatPair formats = input.pick(testing::kFormatPairs);
  uint32_t c = input.word();
  if (!std::isfinite(testing::float_of(c))) c = 0;
  std::vector<Term> terms;
  std::vector<testing::NaiveProduct> products;
  while (!input.empty() && terms.size() < static_cast<size_t>(model.nfma)) {
    const uint8_t a = input.byte();
    const uint8_t b = input.byte();
    const Decoded x = decode_finite(formats.a, a);
    const Decoded y = decode_finite(formats.b, b);
    terms.push_back(multiply_exact(formats.a, x, formats.b, y));
    const bool finite = std::isfinite(testing::value_of(formats.a, a)) &&
                        std::isfinite(testing::value_of(formats.b, b));
    if (finite) products.push_back(testing::naive_product(formats.a, a, formats.b, b));
    // R14: one that is not finite counts as +0, and makes its product zero.
    if (!finite) products.push_back({});
  }
  const uint32_t actual = block_step(model, c, [&](int i) {
    return static_cast<size_t>(i) < terms.size() ? terms[static_cast<size_t>(i)] : Term{};
  });
  const uint32_t expected = testing::naive_block_step(model, c, products);
  MMAEMU_FUZZ_CHECK(actual == expected, model.nfma, model.frac, model.frac_out, model.min_exp,
                    model.late_c, c, actual, expected);
}

void check_fp32(Input& input) {
  const uint32_t x = input.word();
  const uint32_t y = input.word();
  const uint32_t sum = add_fp32(x, y);
  MMAEMU_FUZZ_CHECK(sum == testing::naive_add(x, y), x, y, sum);
  const uint32_t product = multiply_fp32(x, y);
  MMAEMU_FUZZ_CHECK(product == testing::naive_multiply(x, y), x, y, product);
}

void check_epilogue(Input& input) {
  const testing::NaiveScales scales{input.word(), input.word(), input.word()};
  const uint32_t acc = input.word();
  for (const FloatFormat& out : testing::kOutputs) {
    const Epilogue epilogue{out, multiply_fp32(scales.a, scales.b), scales.result, true};
    const uint32_t actual = apply_epilogue(epilogue, acc);
    const uint32_t expected = testing::naive_output(out, scales, acc);
    MMAEMU_FUZZ_CHECK(actual == expected, out.bits(), out.mantissa_bits, scales.a, scales.b,
                      scales.result, acc, actual, expected);
  }
}

}  // namespace

Outcome fuzz_arithmetic(const uint8_t* data, size_t size) {
  const cpu::ScopedIeeeEnv ieee;
  Input input(data, size);
  constexpr std::array kChecks{check_block, check_validity, check_fp32, check_epilogue};
  input.pick(kChecks)(input);
  return Outcome::kComputed;
}

}  // namespace mmaemu::fuzz
