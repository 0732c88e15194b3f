#include "cpu/parallel.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "cpu/ieee_env.h"

namespace mmaemu::cpu {
namespace {

// Shared with the scheduled tasks, which may start after parallel_for has returned: then they find
// no task left and touch nothing else.
struct Work {
  Work(int64_t tasks, const std::function<void(int64_t, int64_t)>* body)
      : tasks(tasks), body(body) {}

  const int64_t tasks;
  const std::function<void(int64_t, int64_t)>* const body;  // alive while a task is unfinished
  std::atomic<int64_t> next{0};

  std::mutex mutex;
  std::condition_variable all_done;
  int64_t finished = 0;
  std::exception_ptr error;

  void drain(int64_t worker) {
    const ScopedIeeeEnv ieee;
    int64_t done = 0;
    std::exception_ptr caught;
    for (;;) {
      const int64_t task = next.fetch_add(1, std::memory_order_relaxed);
      if (task >= tasks) break;
      ++done;
      if (caught) continue;
      try {
        (*body)(task, worker);
      } catch (...) {  // forwarded to the caller of parallel_for
        caught = std::current_exception();
        done += skip_rest();
      }
    }
    if (done == 0) return;
    const std::lock_guard<std::mutex> lock(mutex);
    finished += done;
    if (caught && !error) error = std::move(caught);
    if (finished == tasks) all_done.notify_all();
  }

  // Claims every task nobody has started; returns how many.
  int64_t skip_rest() {
    const int64_t first = next.exchange(tasks, std::memory_order_relaxed);
    return std::max<int64_t>(0, tasks - first);
  }
};

}  // namespace

int64_t worker_count(const TaskPool& pool, int64_t tasks) {
  return std::max<int64_t>(1, std::min(pool.num_threads() + 1, tasks));
}

void parallel_for(TaskPool& pool, int64_t tasks,
                  const std::function<void(int64_t, int64_t)>& body) {
  if (tasks <= 0) return;
  const int64_t workers = worker_count(pool, tasks);
  const auto work = std::make_shared<Work>(tasks, &body);
  for (int64_t worker = 1; worker < workers; ++worker) {
    try {
      pool.schedule([work, worker] { work->drain(worker); });
    } catch (...) {  // fewer workers; leaving now would let the ones under way outlive `body`
      break;
    }
  }
  work->drain(0);
  std::unique_lock<std::mutex> lock(work->mutex);
  work->all_done.wait(lock, [&] { return work->finished == work->tasks; });
  // Moved out, so that the exception is destroyed in this thread.
  if (work->error) std::rethrow_exception(std::move(work->error));
}

}  // namespace mmaemu::cpu
