// The GEMM handler and memory: 10^5 calls leave no block behind; whichever allocation fails, the
// answer is RESOURCE_EXHAUSTED or the right bytes, nothing is thrown at XLA, and the next call
// works.

#include <array>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "cpu/dispatch.h"
#include "ffi/cpu_handlers.h"
#include "tests/allocations.h"
#include "tests/call_frame.h"
#include "tests/check.h"
#include "tests/fake_xla.h"
#include "tests/ones_call.h"
#include "tests/workload.h"

namespace mmaemu::testing {
namespace {

constexpr int kThrown = -1;

// The code of the handler's answer; kThrown if an exception came out of it.
int answer(CallFrame& frame) {
  try {
    const std::unique_ptr<XLA_FFI_Error> error(ffi_glue::gemm_handler(frame.get()));
    return error ? error->code : XLA_FFI_Error_Code_OK;
  } catch (const std::exception&) {
    return kThrown;
  }
}

std::vector<std::string> kernels() {
  std::vector<std::string> names;
  for (const cpu::TargetStatus& status : cpu::targets()) {
    if (status.usable) names.emplace_back(status.target->name);
  }
  return names;
}

// Fails request after request of one call, until a call needs no more of them.
void check_failures(OnesCall& call, Temper temper, int64_t least, bool once, int right) {
  constexpr int64_t kEnough = 10'000;
  FakeRuntime runtime(temper, 4);
  CallFrame frame(call.spec(), FakeRuntime::api(), runtime.context());
  MMAEMU_CHECK(answer(frame) == right);
  runtime.finish();
  const int64_t before = live_blocks;
  int64_t request = 0;
  for (; request < kEnough; ++request) {
    call.clear();
    fail_from(request, least, once);
    const int code = answer(frame);
    const bool failed = stop_failing() != 0;
    runtime.finish();
    const bool correct = code == right && (right != XLA_FFI_Error_Code_OK || call.is_right());
    MMAEMU_CHECK(correct || (failed && code == XLA_FFI_Error_Code_RESOURCE_EXHAUSTED), request,
                 code, least);
    MMAEMU_CHECK(live_blocks == before, request, live_blocks.load(), before);
    if (!failed) break;
  }
  MMAEMU_CHECK(request < kEnough && (request > 0 || !once), request);
  call.clear();
  MMAEMU_CHECK(answer(frame) == right);
  runtime.finish();
  MMAEMU_CHECK(call.is_right() || right != XLA_FFI_Error_Code_OK);
}

void check_out_of_memory() {
  for (const std::string& kernel : kernels()) {
    OnesCall small(3, 5, 40, kernel);
    OnesCall large(100, 90, 40, kernel);  // runs on the pool
    OnesCall wrong(3, 5, 40, kernel);
    wrong.spec().arguments[1].dims = {5, 41};
    for (const bool once : {true, false}) {
      const int64_t least = once ? 0 : 4096;  // no memory at all is not for XLA, either
      check_failures(small, Temper::kInline, least, once, XLA_FFI_Error_Code_OK);
      check_failures(large, Temper::kInline, least, once, XLA_FFI_Error_Code_OK);
      check_failures(large, Temper::kLate, least, once, XLA_FFI_Error_Code_OK);
    }
    check_failures(wrong, Temper::kInline, 0, true, XLA_FFI_Error_Code_INVALID_ARGUMENT);
  }
}

void check_leaks() {
  const int64_t calls = kFewerCases ? 2'000 : 100'000;
  std::vector<std::unique_ptr<OnesCall>> list;
  for (const std::string& kernel : kernels()) {
    list.push_back(std::make_unique<OnesCall>(3, 5, 40, kernel));
    list.push_back(std::make_unique<OnesCall>(1, 2, 7, kernel));
    list.back()->spec().attributes[3].value = std::string("none");  // refused
  }
  FakeRuntime runtime(Temper::kInline, 2);
  int64_t before = 0;
  int64_t wrong = 0;
  for (int64_t i = -100; i < calls; ++i) {
    if (i == 0) before = live_blocks;
    OnesCall& call = *list[static_cast<size_t>(i + 100) % list.size()];
    CallFrame frame(call.spec(), FakeRuntime::api(), runtime.context());
    const int code = answer(frame);
    wrong += code == XLA_FFI_Error_Code_OK ? !call.is_right()
                                           : code != XLA_FFI_Error_Code_INVALID_ARGUMENT;
  }
  MMAEMU_CHECK(live_blocks == before, live_blocks.load(), before);
  MMAEMU_CHECK(wrong == 0, wrong);
}

}  // namespace
}  // namespace mmaemu::testing

int main() {
  using namespace mmaemu::testing;
  check_out_of_memory();
  check_leaks();
  return finish();
}
