// Pools to run kernels on: threads in the floating-point mode of XLA's, tasks that start late or
// never, and pools that refuse them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <new>
#include <queue>
#include <thread>
#include <utility>
#include <vector>

#include "cpu/ieee_env.h"
#include "cpu/parallel.h"
#include "tests/fp_mode.h"

namespace mmaemu::testing {

class ThreadPool final : public cpu::TaskPool {
 public:
  explicit ThreadPool(int threads, uint64_t fp_control = kXlaFpControl) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, fp_control] {
        cpu::write_fp_control(fp_control);
        work();
      });
    }
  }
  ~ThreadPool() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  int64_t num_threads() const override { return static_cast<int64_t>(threads_.size()); }
  void schedule(std::function<void()> task) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push(std::move(task));
    ready_.notify_one();
  }

 private:
  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      ready_.wait(lock, [this] { return closed_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable ready_;
  std::queue<std::function<void()>> tasks_;
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

// Keeps its tasks until run_all(), which may never come.
class LatePool final : public cpu::TaskPool {
 public:
  int64_t num_threads() const override { return 3; }
  void schedule(std::function<void()> task) override { tasks_.push_back(std::move(task)); }
  int64_t run_all() {
    for (const std::function<void()>& task : tasks_) task();
    return static_cast<int64_t>(tasks_.size());
  }

 private:
  std::vector<std::function<void()>> tasks_;
};

// Takes one task and refuses the next, as a pool out of memory would.
class FullPool final : public cpu::TaskPool {
 public:
  int64_t num_threads() const override { return 3; }
  void schedule(std::function<void()> task) override {
    if (!taken_.empty()) throw std::bad_alloc();
    taken_.push_back(std::move(task));
  }
  void run_taken() const { taken_.front()(); }

 private:
  std::vector<std::function<void()>> taken_;
};

// Runs each task inside schedule(), as XLA may.
class InlinePool final : public cpu::TaskPool {
 public:
  int64_t num_threads() const override { return 3; }
  void schedule(std::function<void()> task) override { task(); }
};

}  // namespace mmaemu::testing
