// The floating-point environment: XLA calls kernels with subnormals flushed, from threads that have
// their own mode. Neither that nor the number of threads may reach a bit of a result.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "cpu/dispatch.h"
#include "cpu/ieee_env.h"
#include "cpu/portable.h"
#include "tests/bits.h"
#include "tests/check.h"
#include "tests/fp_mode.h"
#include "tests/gemm_case.h"
#include "tests/operand_families.h"
#include "tests/thread_pool.h"
#include "tests/workload.h"

namespace mmaemu::testing {
namespace {

#if defined(__x86_64__)  // whose control word holds the exception flags too
static_assert(((cpu::kIeeeControl | cpu::kTowardZeroControl) & _MM_EXCEPT_MASK) == 0);
#endif

void check_guard() {
  for (const uint64_t mode : caller_modes()) {
    const cpu::ScopedFpControl caller(mode);
    bool ieee = false;
    bool ieee_nested = false;
    bool toward_zero_here = false;
    {
      const cpu::ScopedIeeeEnv outer;
      {
        const cpu::ScopedIeeeEnv inner;
      }
      ieee_nested = is_ieee_here();
      const cpu::ScopedFpControl toward_zero(cpu::kTowardZeroControl);
      toward_zero_here = is_toward_zero_here();
      const cpu::ScopedIeeeEnv inner;
      ieee = is_ieee_here();
    }
    const uint64_t after = cpu::read_fp_control();
    MMAEMU_CHECK(ieee && ieee_nested && toward_zero_here, mode);
    MMAEMU_CHECK(after == mode, mode, after);
    try {
      const cpu::ScopedIeeeEnv guard;
      throw std::runtime_error("from inside the guard");
    } catch (const std::runtime_error&) {
      MMAEMU_CHECK(cpu::read_fp_control() == mode, mode, cpu::read_fp_control());
    }
  }
  const cpu::ScopedFpControl flushing(kXlaFpControl);
  MMAEMU_CHECK(kFlushMask == 0 || !is_ieee_here());  // is_ieee_here can tell
}

// GEMMs whose scales, partial products and results are subnormal.
std::vector<GemmCase> subnormal_cases() {
  std::vector<GemmCase> list;
  Random random(1);
  for (const FloatFormat& out : kOutputs) {
    for (const bool slow : {false, true}) {
      GemmCase gemm;
      gemm.model = slow ? kEarly32 : kEarly16;
      gemm.plan.chunk_k = slow ? 128 : 0;
      gemm.out = out;
      gemm.set_shape(65, 63, 66);  // enough for the pool
      // Results land in the output's own subnormals: sums are around 2^14, or 2^-11 of subnormals.
      const int alpha_exponent = out.emin() - (slow ? -9 : 16) - (out.bits() == 8 ? 3 : 0);
      gemm.scale_a = {0x00400001u};  // about 2^-127
      gemm.scale_b = {bits_of(std::ldexp(1.0f, alpha_exponent + 127))};
      if (out.bits() == 8) gemm.scale_result = {0x40C00000u};  // 6
      fill_operands(gemm, random, slow ? Family::kSubnormals : Family::kFiniteCodes);
      list.push_back(gemm);
    }
  }
  GemmCase dot = list.front();  // R8 adds in fp32: subnormal initial accumulators
  dot.model = kLate32;
  dot.scale_a = {0x3F800000u};
  dot.scale_b = {0x3F800000u};
  for (uint8_t& code : dot.a) code &= random.one_in(3) ? 0x80 : 0;
  for (int64_t i = 0; i < dot.m * dot.n; ++i) dot.c.push_back(random.bits() & 0x807FFFFFu);
  list.push_back(dot);
  return list;
}

bool has_subnormal(const GemmCase& gemm, const std::vector<uint8_t>& bytes) {
  const auto size = static_cast<size_t>(gemm.out.bits() / 8);
  for (size_t at = 0; at < bytes.size(); at += size) {
    uint32_t code = 0;
    std::memcpy(&code, bytes.data() + at, size);
    const Decoded d = decode(gemm.out, code);
    const bool normal = (d.significand >> gemm.out.mantissa_bits) != 0;
    if (d.significand != 0 && !normal) return true;
  }
  return false;
}

void check_gemm_modes() {
  ThreadPool threads(2);
  cpu::SerialPool serial;
  for (const GemmCase& gemm : subnormal_cases()) {
    // Integers alone, whatever the mode: the kernel and apply_epilogue of the portable target.
    const std::vector<uint8_t> expected = run_on(gemm, cpu::portable_target(), serial, 0x00);
    MMAEMU_CHECK(has_subnormal(gemm, expected), gemm.text());
    for (const uint64_t mode : caller_modes()) {
      for (const cpu::TargetStatus& status : cpu::targets()) {
        if (!status.usable) continue;
        const cpu::ScopedFpControl caller(mode);
        const bool same_serial = run_on(gemm, *status.target, serial, 0xFF) == expected;
        const uint64_t after = cpu::read_fp_control();
        const bool same_threads = run_on(gemm, *status.target, threads, 0xFF) == expected;
        MMAEMU_CHECK(same_serial, status.target->name, mode, gemm.text());
        MMAEMU_CHECK(same_threads, status.target->name, mode, gemm.text());
        MMAEMU_CHECK(after == mode, status.target->name, mode, after);
      }
    }
  }
}

void check_thread_counts() {
  Random random(2);
  GemmCase gemm;
  gemm.plan = {128, 3, 64, true, true};
  gemm.batch = gemm.batch_a = {2};
  gemm.batch_b = {1};
  gemm.scale_a.assign(2, 0x3F800000u);
  gemm.set_shape(300, 270, kFewerCases ? 3 : 40);
  fill_operands(gemm, random, Family::kRareSpecials);
  cpu::SerialPool serial;
  for (const cpu::TargetStatus& status : cpu::targets()) {
    if (!status.usable) continue;
    const std::vector<uint8_t> expected = run_on(gemm, *status.target, serial, 0x00);
    for (const int threads : {0, 1, 2, 3, 7}) {
      ThreadPool pool(threads);
      const bool same = run_on(gemm, *status.target, pool, 0xFF) == expected;
      MMAEMU_CHECK(same, status.target->name, threads);
    }
    LatePool late;
    InlinePool in_line;
    const bool same_late = run_on(gemm, *status.target, late, 0xFF) == expected;
    const bool same_in_line = run_on(gemm, *status.target, in_line, 0xFF) == expected;
    MMAEMU_CHECK(same_late && same_in_line, status.target->name, same_late, same_in_line);
    MMAEMU_CHECK(late.run_all() == 3, status.target->name);
  }
}

}  // namespace
}  // namespace mmaemu::testing

int main() {
  using namespace mmaemu::testing;
  check_guard();
  check_gemm_modes();
  check_thread_counts();
  return finish();
}
