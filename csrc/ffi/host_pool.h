// Threads of our own as a TaskPool, for calls that no runtime lends a pool to.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "cpu/parallel.h"

namespace mmaemu::ffi_glue {

// One thread per scheduled task, joined when the pool goes.
class HostPool final : public cpu::TaskPool {
 public:
  explicit HostPool(int64_t threads) : helpers_(threads > 1 ? threads - 1 : 0) {}
  ~HostPool() override {
    for (std::thread& thread : started_) thread.join();
  }
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  int64_t num_threads() const override { return helpers_; }
  void schedule(std::function<void()> task) override { started_.emplace_back(std::move(task)); }

 private:
  const int64_t helpers_;
  std::vector<std::thread> started_;
};

}  // namespace mmaemu::ffi_glue
