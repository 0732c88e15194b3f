// The normative block step (R3 to R8) against the one of naive.h.

#include <cmath>
#include <cstdint>
#include <vector>

#include "cpu/ieee_env.h"
#include "numerics/block_fma.h"
#include "tests/bits.h"
#include "tests/check.h"
#include "tests/models.h"
#include "tests/naive.h"
#include "tests/random.h"
#include "tests/workload.h"

namespace mmaemu::testing {
namespace {

// A constant expression has no undefined behaviour: zeros far above the alignment shift nothing.
constexpr Term kZero{0, 30, 6, false};
static_assert(block_step(kEarly32, 0, [](int) { return kZero; }) == 0);
static_assert(block_step({16, 13, 13, -1000, false}, 0x80080000u, [](int) { return kZero; }) ==
              0x80080000u);

// The shipped models, then custom ones at the ends of every bound of instruction_model.h.
std::vector<InstructionModel> all_models() {
  std::vector<InstructionModel> models{kEarly16, kEarly32, kLate32};
  for (const bool late_c : {false, true}) {
    for (const int nfma : {1, kMaxNfma}) {
      for (const int frac : {1, kMaxFrac}) {
        for (const int frac_out : {1, kMaxFracOut}) {
          models.push_back({nfma, frac, frac_out, -132, late_c});
        }
      }
    }
    for (const int min_exp : {-1000, -20, 0, 127}) models.push_back({8, 13, 13, min_exp, late_c});
  }
  return models;
}

// Every field at both ends of its range, and one step beyond.
void check_validity() {
  const std::vector<InstructionModel> valid{{1, 1, 1, -1000, true}, {1024, 40, 23, 127, false}};
  const std::vector<InstructionModel> invalid{
      {0, 1, 1, 0, true}, {1025, 1, 1, 0, true}, {1, 0, 1, 0, true},     {1, 41, 1, 0, true},
      {1, 1, 0, 0, true}, {1, 1, 24, 0, true},   {1, 1, 1, -1001, true}, {1, 1, 1, 128, true},
  };
  for (const InstructionModel& model : valid) MMAEMU_CHECK(is_valid(model), model.nfma);
  for (const InstructionModel& model : invalid) {
    MMAEMU_CHECK(!is_valid(model), model.nfma, model.frac, model.frac_out, model.min_exp);
  }
}

// Both codes of each product of one block.
struct Block {
  FormatPair formats;
  std::vector<uint8_t> a;
  std::vector<uint8_t> b;
};

bool is_finite(const FloatFormat& format, uint32_t code) {
  return std::isfinite(value_of(format, code));
}

void check_block(const InstructionModel& model, const Block& block, uint32_t c) {
  std::vector<NaiveProduct> products;
  for (size_t i = 0; i < block.a.size(); ++i) {
    products.push_back(naive_product(block.formats.a, block.a[i], block.formats.b, block.b[i]));
  }
  const auto product_at = [&](int i) {
    const auto at = static_cast<size_t>(i);
    if (at >= block.a.size()) return Term{0, 0, 0, false};
    return multiply_exact(block.formats.a, decode(block.formats.a, block.a[at]), block.formats.b,
                          decode(block.formats.b, block.b[at]));
  };
  const uint32_t expected = naive_block_step(model, c, products);
  const uint32_t actual = block_step(model, c, product_at);
  MMAEMU_CHECK(actual == expected, model.nfma, model.frac, model.frac_out, model.min_exp,
               model.late_c, c, block.a[0], block.b[0], actual, expected);
}

// Every pair of finite codes of every format pair as a block of one product.
void check_one_product_blocks() {
  const std::vector<InstructionModel> models{
      kEarly16, kEarly32, kLate32, {1, 1, 1, -132, false}, {1, 40, 23, -132, true}};
  const uint32_t stride = kFewerCases ? 17 : 1;
  for (const FormatPair& formats : kFormatPairs) {
    for (uint32_t pair = 0; pair < 65536; pair += stride) {
      const Block block{formats, {static_cast<uint8_t>(pair)}, {static_cast<uint8_t>(pair >> 8)}};
      if (!is_finite(formats.a, block.a[0]) || !is_finite(formats.b, block.b[0])) continue;
      for (const InstructionModel& model : models) {
        for (const uint32_t c : {0u, 0xBF800000u}) check_block(model, block, c);
      }
    }
  }
}

uint8_t finite_code(Random& random, const FloatFormat& format) {
  const uint32_t magnitude = static_cast<uint32_t>(random.below(int64_t{format.max_finite} + 1));
  return static_cast<uint8_t>(magnitude | (random.bits() & 0x80));
}

// One of five kinds: any codes, sums that cancel, small ones beside a large one, subnormals and
// zeros, and zeros alone.
Block random_block(Random& random, const FormatPair& formats, int nfma, int64_t kind) {
  Block block{formats, {}, {}};
  for (int i = 0; i < nfma; ++i) {
    uint8_t a = finite_code(random, formats.a);
    uint8_t b = finite_code(random, formats.b);
    if (kind == 1 && i % 2 == 1 && !random.one_in(8)) {
      a = block.a.back();
      b = block.b.back() ^ 0x80;
    }
    if (kind == 2 && !random.one_in(nfma)) {
      a &= 0x8F;
      b &= 0x8F;
    }
    if (kind == 3) a &= 0x81;
    if (kind == 4) a &= 0x80;
    block.a.push_back(a);
    block.b.push_back(b);
  }
  return block;
}

// +-0, subnormals, every normal exponent, the products' own range, and the largest number.
uint32_t random_accumulator(Random& random) {
  const uint32_t sign = random.bits() & 0x80000000u;
  const uint32_t mantissa = random.bits() & (random.one_in(2) ? 0x7FFFFFu : 0x7FFC00u);
  switch (random.below(6)) {
    case 0:
      return sign;
    case 1:
      return sign | mantissa >> random.below(23);
    case 2:
      return sign | static_cast<uint32_t>(random.between(1, 254)) << 23 | mantissa;
    case 3:
      return sign | kFp32.max_finite;
    default:
      return sign | static_cast<uint32_t>(random.between(127 - 45, 127 + 45)) << 23 | mantissa;
  }
}

void check_random_blocks() {
  Random random(1);
  for (const InstructionModel& model : all_models()) {
    for (const FormatPair& formats : kFormatPairs) {
      const int64_t blocks = cases(model.nfma == kMaxNfma ? 160 : 8000);
      for (int64_t i = 0; i < blocks; ++i) {
        const Block block = random_block(random, formats, model.nfma, i % 5);
        check_block(model, block, random_accumulator(random));
      }
    }
  }
}

// The largest sum the static_assert of instruction_model.h allows for.
void check_largest_sums() {
  for (const InstructionModel& model : all_models()) {
    for (const FormatPair& formats : kFormatPairs) {
      const Block block{formats, std::vector<uint8_t>(model.nfma, formats.a.max_finite),
                        std::vector<uint8_t>(model.nfma, formats.b.max_finite)};
      // An accumulator just below the next power of two at the products' own exponent.
      for (const uint32_t c : {0x4FFFFFFFu, 0x4BFFFFFFu, 0x487FFFFFu, 0xCFFFFFFFu}) {
        check_block(model, block, c);
      }
    }
  }
}

}  // namespace
}  // namespace mmaemu::testing

int main() {
  using namespace mmaemu::testing;
  const mmaemu::cpu::ScopedIeeeEnv ieee;
  check_validity();
  check_one_product_blocks();
  check_random_blocks();
  check_largest_sums();
  return finish();
}
