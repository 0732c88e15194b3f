// The floating-point environment and the task pool: XLA calls kernels with subnormals flushed, from
// threads that have their own mode, on pools that may start a task late or never. None of it may
// reach a bit of a result.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpu/dispatch.h"
#include "cpu/ieee_env.h"
#include "cpu/portable.h"
#include "tests/bits.h"
#include "tests/check.h"
#include "tests/gemm_case.h"
#include "tests/operand_families.h"
#include "tests/thread_pool.h"
#include "tests/workload.h"

namespace mmaemu::testing {
namespace {

// What a caller's control word may be.
std::vector<uint64_t> caller_modes() {
  std::vector<uint64_t> modes{cpu::kIeeeControl, cpu::kTowardZeroControl,
                              cpu::kIeeeControl | cpu::kFlushMask,
                              cpu::kTowardZeroControl | cpu::kFlushMask, kXlaFpControl};
#if defined(__x86_64__)
  // Rounding down and up; flushing outputs alone, and inputs alone.
  for (const uint64_t mode : {0x3F80u, 0x5F80u, 0xDFC0u, 0x9F80u, 0x1FC0u}) modes.push_back(mode);
#endif
  return modes;
}

// Rounds to nearest even and keeps subnormals, in and out.
bool is_ieee_here() {
  const volatile float tiny = 0x1p-130f;
  const volatile float one = 1.0f;
  const volatile float half_ulp = 0x1p-24f;
  const volatile float small = tiny * 0.5f;
  const volatile float large = tiny * 0x1p30f;
  const volatile float up = one + half_ulp;
  const volatile float down = -one - half_ulp;
  return bits_of(small) == 0x00040000u && large == 0x1p-100f && up == 1.0f && down == -1.0f;
}

void check_guard() {
  for (const uint64_t mode : caller_modes()) {
    const cpu::ScopedFpControl caller(mode);
    bool ieee = false;
    bool ieee_nested = false;
    {
      const cpu::ScopedIeeeEnv outer;
      {
        const cpu::ScopedIeeeEnv inner;
      }
      ieee_nested = is_ieee_here();
      const cpu::ScopedFpControl toward_zero(cpu::kTowardZeroControl);
      const cpu::ScopedIeeeEnv inner;
      ieee = is_ieee_here();
    }
    const uint64_t after = cpu::read_fp_control();
    MMAEMU_CHECK(ieee && ieee_nested, mode);
    MMAEMU_CHECK(after == mode, mode, after);
    try {
      const cpu::ScopedIeeeEnv guard;
      throw std::runtime_error("from inside the guard");
    } catch (const std::runtime_error&) {
      MMAEMU_CHECK(cpu::read_fp_control() == mode, mode, cpu::read_fp_control());
    }
  }
  const cpu::ScopedFpControl flushing(kXlaFpControl);
  MMAEMU_CHECK(cpu::kFlushMask == 0 || !is_ieee_here());  // is_ieee_here can tell
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
      gemm.set_shape(65, 63, 66);    // enough for the pool
      // Results land in the output's own subnormals: sums are around 2^14, or 2^-11 of subnormals.
      const int alpha_exponent = out.emin() - 2 - (slow ? -11 : 14);
      gemm.scale_a = {0x00400001u};  // about 2^-127
      gemm.scale_b = {bits_of(std::ldexp(1.0f, alpha_exponent + 127))};
      if (out.bits() == 8) gemm.scale_result = {0x3F400000u};
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
  gemm.set_shape(300, 270, kSanitized ? 3 : 40);
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

// What the bodies of one parallel_for saw.
struct Record {
  Record(int64_t tasks, int64_t workers)
      : runs(static_cast<size_t>(tasks)), busy(static_cast<size_t>(workers)) {}
  std::vector<std::atomic<int>> runs;
  std::vector<std::atomic<int>> busy;
  std::atomic<bool> shared_worker{false};
  std::atomic<bool> wrong_worker{false};
  std::atomic<bool> wrong_mode{false};

  void task(int64_t index, int64_t worker) {
    if (worker < 0 || worker >= static_cast<int64_t>(busy.size())) {
      wrong_worker = true;
      return;
    }
    std::atomic<int>& mine = busy[static_cast<size_t>(worker)];
    if (mine.fetch_add(1) != 0) shared_worker = true;
    if (!is_ieee_here()) wrong_mode = true;
    ++runs[static_cast<size_t>(index)];
    --mine;
  }
  int64_t total() const {
    int64_t sum = 0;
    for (const std::atomic<int>& count : runs) sum += count;
    return sum;
  }
};

void check_all_run_once(cpu::TaskPool& pool, const char* name) {
  const cpu::ScopedFpControl caller(kXlaFpControl);
  for (const int64_t tasks : {0, 1, 2, 3, 4, 5, 100, 2000}) {
    const int64_t workers = cpu::worker_count(pool, tasks);
    MMAEMU_CHECK(workers >= 1 && workers <= std::max<int64_t>(1, tasks), name, tasks, workers);
    Record record(tasks, workers);
    cpu::parallel_for(pool, tasks,
                      [&](int64_t task, int64_t worker) { record.task(task, worker); });
    bool once = true;
    for (const std::atomic<int>& count : record.runs) once = once && count == 1;
    MMAEMU_CHECK(once, name, tasks, record.total());
    MMAEMU_CHECK(!record.wrong_worker && !record.shared_worker, name, tasks);
    MMAEMU_CHECK(!record.wrong_mode, name, tasks);
    MMAEMU_CHECK(cpu::read_fp_control() == kXlaFpControl, name, cpu::read_fp_control());
  }
}

// Late tasks find nothing to do, even when the body and everything it captured are gone.
void check_late_tasks() {
  LatePool late;
  {
    auto count = std::make_unique<int64_t>(0);
    cpu::parallel_for(late, 10, [&](int64_t, int64_t) { ++*count; });
    MMAEMU_CHECK(*count == 10, *count);
  }
  bool thrown = false;
  try {
    auto count = std::make_unique<int64_t>(0);
    cpu::parallel_for(late, 10, [&](int64_t task, int64_t) {
      if (++*count == 3) throw std::runtime_error(std::to_string(task));
    });
  } catch (const std::runtime_error&) {
    thrown = true;
  }
  MMAEMU_CHECK(thrown);
  MMAEMU_CHECK(late.run_all() == 6);
}

// The message of what a parallel_for over `tasks` threw when its tasks from `first` on throw.
std::string thrown_by(cpu::TaskPool& pool, int64_t tasks, int64_t first, Record& record) {
  try {
    cpu::parallel_for(pool, tasks, [&](int64_t task, int64_t worker) {
      record.task(task, worker);
      if (task >= first) throw std::out_of_range("thrown by a task");
    });
  } catch (const std::out_of_range& error) {
    return error.what();
  }
  return "";
}

void check_exceptions(cpu::TaskPool& pool, const char* name) {
  const cpu::ScopedFpControl caller(kXlaFpControl);
  constexpr int64_t kTasks = 1000;
  for (const int64_t first : {0, 1, 500, 999}) {
    const int64_t workers = cpu::worker_count(pool, kTasks);
    Record record(kTasks, workers);
    const std::string message = thrown_by(pool, kTasks, first, record);
    MMAEMU_CHECK(message == "thrown by a task", name, first, message);
    // Each worker may have had one task in hand when the first one threw.
    MMAEMU_CHECK(record.total() >= first + 1 && record.total() <= first + workers, name, first,
                 record.total());
    MMAEMU_CHECK(cpu::read_fp_control() == kXlaFpControl, name, cpu::read_fp_control());
  }
  check_all_run_once(pool, name);
}

void throwing_kernel(const cpu::TileProblem&, cpu::TileScratch*) {
  throw std::length_error("thrown by a kernel");
}

void check_throwing_kernel() {
  cpu::KernelTarget broken = cpu::portable_target();
  broken.accumulate = throwing_kernel;
  const GemmCase gemm = subnormal_cases().front();
  ThreadPool threads(3);
  for (int i = 0; i < 20; ++i) {
    bool thrown = false;
    try {
      run_on(gemm, broken, threads);
    } catch (const std::length_error&) {
      thrown = true;
    }
    MMAEMU_CHECK(thrown, i);
  }
  check_all_run_once(threads, "threads, after a throwing kernel");
}

void check_pools() {
  cpu::SerialPool serial;
  ThreadPool threads(3);
  LatePool late;
  InlinePool in_line;
  ThreadPool none(0);
  const struct {
    cpu::TaskPool& pool;
    const char* name;
  } rows[] = {{serial, "serial"},
              {threads, "threads"},
              {late, "late"},
              {in_line, "inline"},
              {none, "no threads"}};
  for (const auto& row : rows) {
    check_all_run_once(row.pool, row.name);
    check_exceptions(row.pool, row.name);
  }
  late.run_all();
}

}  // namespace
}  // namespace mmaemu::testing

int main() {
  using namespace mmaemu::testing;
  check_guard();
  check_pools();
  check_late_tasks();
  check_gemm_modes();
  check_thread_counts();
  check_throwing_kernel();
  return finish();
}
