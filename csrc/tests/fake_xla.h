// XLA's side of the FFI for tests: errors, and a thread pool of a chosen temper.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "xla/ffi/api/c_api.h"

struct XLA_FFI_Error {
  XLA_FFI_Error_Code code;
  std::string message;
};

namespace mmaemu::testing {

// When the pool runs a task: inside schedule, when the call is over, in a thread, or not at all
// because it takes none.
enum class Temper { kInline, kLate, kThreads, kRefuses };

// What a call frame's execution context points to.
class FakeRuntime {
 public:
  FakeRuntime(Temper temper, int64_t threads) : temper_(temper), threads_(threads) {}
  ~FakeRuntime() { finish(); }
  FakeRuntime(const FakeRuntime&) = delete;
  FakeRuntime& operator=(const FakeRuntime&) = delete;

  XLA_FFI_ExecutionContext* context() { return reinterpret_cast<XLA_FFI_ExecutionContext*>(this); }
  static const XLA_FFI_Api& api() {
    static const XLA_FFI_Api kApi = make_api();
    return kApi;
  }

  // Runs the late tasks and waits for the threads.
  void finish() {
    for (const auto& [task, data] : late_) task(data);
    for (std::thread& thread : started_) thread.join();
    late_.clear();
    started_.clear();
  }

 private:
  static FakeRuntime& self(XLA_FFI_ExecutionContext* context) {
    return *reinterpret_cast<FakeRuntime*>(context);
  }

  XLA_FFI_Error* schedule(XLA_FFI_Task* task, void* data) {
    switch (temper_) {
      case Temper::kInline:
        task(data);
        return nullptr;
      case Temper::kLate:
        late_.emplace_back(task, data);
        return nullptr;
      case Temper::kThreads:
        started_.emplace_back([task, data] { task(data); });
        return nullptr;
      default:
        return new XLA_FFI_Error{XLA_FFI_Error_Code_UNAVAILABLE, "no pool"};
    }
  }

  static XLA_FFI_Api make_api() {
    XLA_FFI_Api api{};
    api.struct_size = XLA_FFI_Api_STRUCT_SIZE;
    api.api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, XLA_FFI_API_MAJOR,
                       XLA_FFI_API_MINOR};
    api.XLA_FFI_Error_Create = [](XLA_FFI_Error_Create_Args* args) {
      return new XLA_FFI_Error{args->errc, args->message};
    };
    api.XLA_FFI_Error_GetMessage = [](XLA_FFI_Error_GetMessage_Args* args) {
      args->message = args->error->message.c_str();
    };
    api.XLA_FFI_Error_Destroy = [](XLA_FFI_Error_Destroy_Args* args) { delete args->error; };
    api.XLA_FFI_ThreadPool_Schedule = [](XLA_FFI_ThreadPool_Schedule_Args* args) {
      return self(args->ctx).schedule(args->task, args->data);
    };
    api.XLA_FFI_ThreadPool_NumThreads =
        [](XLA_FFI_ThreadPool_NumThreads_Args* args) -> XLA_FFI_Error* {
      *args->num_threads = self(args->ctx).threads_;
      return nullptr;
    };
    return api;
  }

  const Temper temper_;
  const int64_t threads_;
  std::vector<std::pair<XLA_FFI_Task*, void*>> late_;
  std::vector<std::thread> started_;
};

}  // namespace mmaemu::testing
