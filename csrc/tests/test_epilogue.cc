// The epilogue of every target against apply_epilogue (R16 to R19): accumulators of a prime stride
// through all 2^32, and every boundary of the narrow formats. With --exhaustive, all 2^32 of them
// for the four narrow outputs at alpha = 1 (minutes).

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "cpu/dispatch.h"
#include "cpu/ieee_env.h"
#include "numerics/epilogue.h"
#include "tests/bits.h"
#include "tests/check.h"
#include "tests/models.h"
#include "tests/workload.h"

namespace mmaemu::testing {
namespace {

using Codes = std::vector<uint8_t>;  // of 1, 2 or 4 bytes each

size_t size_of(const Epilogue& epilogue) {
  return static_cast<size_t>(epilogue.out_format.bits() / 8);
}

Codes normative(const Epilogue& epilogue, const std::vector<uint32_t>& acc) {
  const size_t size = size_of(epilogue);
  Codes codes(acc.size() * size);
  for (size_t i = 0; i < acc.size(); ++i) {
    const uint32_t code = apply_epilogue(epilogue, acc[i]);
    std::memcpy(codes.data() + i * size, &code, size);
  }
  return codes;
}

void check_target(const cpu::KernelTarget& target, const Epilogue& epilogue,
                  const std::vector<uint32_t>& acc, const Codes& expected) {
  Codes actual(expected.size(), 0xA5);
  target.finish(epilogue, acc.data(), static_cast<int64_t>(acc.size()), actual.data());
  const auto differs = std::mismatch(expected.begin(), expected.end(), actual.begin());
  const auto i = static_cast<size_t>(differs.first - expected.begin()) / size_of(epilogue);
  MMAEMU_CHECK(differs.first == expected.end(), target.name, acc[i], epilogue.out_format.bits(),
               epilogue.out_format.mantissa_bits, epilogue.alpha_bits, epilogue.has_scale_result,
               epilogue.scale_result_bits);
}

void check(const Epilogue& epilogue, const std::vector<uint32_t>& acc) {
  const Codes expected = normative(epilogue, acc);
  for (const cpu::TargetStatus& status : cpu::targets()) {
    if (status.usable) check_target(*status.target, epilogue, acc, expected);
  }
}

// Every high half with the low halves at the ties of bf16, and of fp16 and FP8 (in the high half).
std::vector<uint32_t> boundaries() {
  std::vector<uint32_t> acc;
  for (uint32_t high = 0; high < 65536; high += kFewerCases ? 7 : 1) {
    for (uint32_t low :
         {0u, 1u, 0x0FFFu, 0x1000u, 0x1001u, 0x3000u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      acc.push_back(high << 16 | low);
    }
  }
  return acc;
}

constexpr uint32_t kOne = 0x3F800000u;
constexpr std::array<uint32_t, 10> kAlphas{
    kOne,
    0xBEAAAAABu,  // -1/3
    0x2B8CBCCCu,  // 1e-12: most results are subnormal somewhere
    0x00000001u,  // subnormal
    0x807FFFFFu,  // the largest subnormal, negative
    0x7F7FFFFFu,  // huge
    0x00000000u, 0x80000000u,
    0x7F800001u,  // a signalling NaN
    0xFF800000u,  // -Inf
};
constexpr std::array<uint32_t, 7> kScaleResults{kOne,        0xC1200000u, 0x00000003u, 0x7F7FFFFFu,
                                                0x80000000u, 0x7FC00001u, 0x7F800000u};

// Every output with every alpha; with a scale_result also where it must be ignored (R18).
std::vector<Epilogue> epilogues() {
  std::vector<Epilogue> list;
  for (const FloatFormat& out : kOutputs) {
    for (const uint32_t alpha : kAlphas) {
      list.push_back({out, alpha, 0, false});
      if (out.bits() != 8) list.push_back({out, alpha, 0x7FC00000u, true});
      for (const uint32_t scale_result : kScaleResults) {
        if (out.bits() == 8) list.push_back({out, alpha, scale_result, true});
      }
    }
  }
  return list;
}

void check_boundaries() {
  const std::vector<uint32_t> acc = boundaries();
  for (const FloatFormat& out : kOutputs) {
    check({out, kOne, 0, false}, acc);
    check({out, kOne, kOne, true}, acc);
  }
}

// A prime stride spans the whole range; each combination starts elsewhere.
void check_strided() {
  constexpr uint64_t kStride = kFewerCases ? 1'000'003 : 20'011;
  uint64_t start = 0;
  for (const Epilogue& epilogue : epilogues()) {
    std::vector<uint32_t> acc;
    for (uint64_t bits = start; bits < uint64_t{1} << 32; bits += kStride) {
      acc.push_back(static_cast<uint32_t>(bits));
    }
    check(epilogue, acc);
    start = (start + 7919) % kStride;
  }
}

// y * scale_result just below 19/16, a tie of E4M3 that rounds up: RN32 makes it the tie (R18), a
// truncation would not.
void check_two_roundings() {
  const Epilogue epilogue{kE4M3, kOne, 0x3F97F68Bu, true};
  check(epilogue, {0x3F8007F7u});
  MMAEMU_CHECK(apply_epilogue(epilogue, 0x3F8007F7u) == 0x3A);  // 1.25
}

// Short rows at unaligned places: nothing before or behind them is written.
void check_row_ends() {
  std::vector<uint32_t> acc;
  for (uint32_t i = 0; i < 80; ++i) acc.push_back(kOne + i * 0x00123457u);
  for (const FloatFormat& out : kOutputs) {
    const Epilogue epilogue{out, kOne, kOne, true};
    const size_t size = size_of(epilogue);
    for (size_t count = 0; count < acc.size(); ++count) {
      const Codes codes = normative(epilogue, {acc.begin(), acc.begin() + count});
      Codes expected(size * (count + 2), 0xA5);
      std::copy(codes.begin(), codes.end(), expected.begin() + size);
      for (const cpu::TargetStatus& status : cpu::targets()) {
        if (!status.usable) continue;
        Codes actual(expected.size(), 0xA5);
        status.target->finish(epilogue, acc.data(), static_cast<int64_t>(count),
                              actual.data() + size);
        MMAEMU_CHECK(actual == expected, status.target->name, out.bits(), count);
      }
    }
  }
}

void check_exhaustively() {
  constexpr uint64_t kPiece = 1 << 20;
  std::vector<uint32_t> acc(kPiece);
  for (uint64_t first = 0; first < uint64_t{1} << 32; first += kPiece) {
    for (uint64_t i = 0; i < kPiece; ++i) acc[i] = static_cast<uint32_t>(first + i);
    for (const FloatFormat& out : {kBf16, kFp16, kE4M3, kE5M2}) {
      const Epilogue epilogue{out, kOne, 0, false};
      const Codes expected = normative(epilogue, acc);
      for (const cpu::TargetStatus& status : cpu::targets()) {
        // The portable target is apply_epilogue itself.
        if (!status.usable || status.target == cpu::targets().back().target) continue;
        check_target(*status.target, epilogue, acc, expected);
      }
    }
  }
}

}  // namespace
}  // namespace mmaemu::testing

int main(int argc, char** argv) {
  using namespace mmaemu::testing;
  const mmaemu::cpu::ScopedIeeeEnv ieee;
  if (argc > 1 && std::string_view(argv[1]) == "--exhaustive") {
    check_exhaustively();
    return finish();
  }
  check_boundaries();
  check_strided();
  check_two_roundings();
  check_row_ends();
  return finish();
}
