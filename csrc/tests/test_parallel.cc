// parallel_for on pools of every temper: threads, none, inline, late, never, refusing; and with
// tasks that throw. Nothing hangs, every task runs once, in the IEEE environment.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cpu/ieee_env.h"
#include "cpu/parallel.h"
#include "cpu/portable.h"
#include "tests/check.h"
#include "tests/fp_mode.h"
#include "tests/gemm_case.h"
#include "tests/thread_pool.h"

namespace mmaemu::testing {
namespace {

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

// The caller does the work of the tasks a pool refuses; the one it took finds nothing left.
void check_full_pool() {
  FullPool full;
  auto count = std::make_unique<int64_t>(0);
  cpu::parallel_for(full, 10, [&](int64_t, int64_t) { ++*count; });
  MMAEMU_CHECK(*count == 10, *count);
  count.reset();
  full.run_taken();
}

// The caller, out of tasks, waits for a worker that has one, and is told when that is done.
void check_last_worker() {
  ThreadPool thread(1);
  std::atomic<int> started{0};
  std::atomic<int> done{0};
  cpu::parallel_for(thread, 2, [&](int64_t, int64_t worker) {
    ++started;
    while (started < 2) std::this_thread::yield();
    if (worker != 0) {
      while (done < 1) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    ++done;
  });
  MMAEMU_CHECK(done == 2, int{done});
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
  GemmCase gemm;
  gemm.set_shape(65, 65, 65);  // enough products for the pool
  gemm.a.resize(65 * 65);
  gemm.b.resize(65 * 65);
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
  MMAEMU_CHECK(serial.num_threads() == 0, serial.num_threads());
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
  check_pools();
  check_late_tasks();
  check_full_pool();
  check_last_worker();
  check_throwing_kernel();
  return finish();
}
