// Tasks over a pool that somebody else owns (XLA's intra-op pool), without ever waiting for a
// task that has not started: the caller drains the work itself, so a busy pool, a pool of size
// one or a pool that runs tasks inline cannot deadlock.
#pragma once

#include <cstdint>
#include <functional>

namespace mmaemu::cpu {

class TaskPool {
 public:
  virtual ~TaskPool() = default;
  // Threads that could run tasks at the same time, the caller left out; 0 runs all in the caller.
  virtual int64_t num_threads() const = 0;
  virtual void schedule(std::function<void()> task) = 0;
};

class SerialPool final : public TaskPool {
 public:
  int64_t num_threads() const override { return 0; }
  void schedule(std::function<void()> task) override { task(); }
};

// Workers (the caller included) that parallel_for uses for `tasks` tasks.
int64_t worker_count(const TaskPool& pool, int64_t tasks);

// Runs body(task, worker) for every task in [0, tasks), worker in [0, worker_count). Each body
// runs in the IEEE environment. The first exception stops the remaining tasks and is rethrown here.
void parallel_for(TaskPool& pool, int64_t tasks,
                  const std::function<void(int64_t task, int64_t worker)>& body);

}  // namespace mmaemu::cpu
