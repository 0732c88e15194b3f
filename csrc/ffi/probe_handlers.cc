// What the floating-point control register holds where XLA calls us, for the tests that pin it.
// Output: uint32[4] = {handler, handler inside the guard, pool task, pool task inside the guard}.

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "cpu/ieee_env.h"
#include "ffi/cpu_handlers.h"
#include "xla/ffi/api/ffi.h"

namespace mmaemu::ffi_glue {
namespace {

namespace ffi = xla::ffi;

struct Seen {
  uint32_t outside;
  uint32_t inside;
};

Seen look() {
  Seen seen{static_cast<uint32_t>(cpu::read_fp_control()), 0};
  const cpu::ScopedIeeeEnv ieee;
  seen.inside = static_cast<uint32_t>(cpu::read_fp_control());
  return seen;
}

// Unlike a kernel, the probe has to wait for the pool: what a pool thread sees is the question.
Seen look_in_task(ffi::ThreadPool& pool) {
  struct State {
    std::mutex mutex;
    std::condition_variable ready;
    bool done = false;
    Seen seen{};
  };
  const auto state = std::make_shared<State>();
  pool.Schedule([state] {
    const Seen seen = look();
    const std::lock_guard<std::mutex> lock(state->mutex);
    state->seen = seen;
    state->done = true;
    state->ready.notify_all();
  });
  std::unique_lock<std::mutex> lock(state->mutex);
  state->ready.wait(lock, [&] { return state->done; });
  return state->seen;
}

ffi::Error probe(ffi::ThreadPool pool, ffi::Result<ffi::Buffer<ffi::U32>> out) {
  if (out->element_count() != 4) {
    return ffi::Error::InvalidArgument("mmaemu_jax: the probe's output has four elements");
  }
  const Seen handler = look();
  const Seen task = look_in_task(pool);
  uint32_t* data = out->typed_data();
  data[0] = handler.outside;
  data[1] = handler.inside;
  data[2] = task.outside;
  data[3] = task.inside;
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_Error* fp_control_probe_handler(XLA_FFI_CallFrame* call_frame) {
  static const auto* const kHandler =
      ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Ret<ffi::Buffer<ffi::U32>>().To(probe).release();
  return kHandler->Call(call_frame);
}

}  // namespace mmaemu::ffi_glue
