// XLA's intra-op pool as a TaskPool.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>

#include "cpu/parallel.h"
#include "xla/ffi/api/ffi.h"

namespace mmaemu::ffi_glue {

class XlaPool final : public cpu::TaskPool {
 public:
  explicit XlaPool(xla::ffi::ThreadPool pool) : pool_(std::move(pool)) {}

  // The caller works too, and XLA counts a pool with one thread per core.
  int64_t num_threads() const override { return std::max<int64_t>(0, pool_.num_threads() - 1); }
  void schedule(std::function<void()> task) override { pool_.Schedule(std::move(task)); }

 private:
  xla::ffi::ThreadPool pool_;
};

}  // namespace mmaemu::ffi_glue
