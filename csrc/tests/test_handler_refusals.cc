// Calls that the GEMM handler refuses: at the very bounds, and by sentences that show the shapes.
// The fuzzers' calls (csrc/fuzz) are wrong in one place each, and only whether they are refused
// counts.

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "ffi/cpu_handlers.h"
#include "ffi/gemm_call.h"
#include "tests/call_frame.h"
#include "tests/check.h"
#include "tests/fake_xla.h"
#include "tests/ones_call.h"

namespace mmaemu::testing {
namespace {

using Dims = std::vector<int64_t>;

// The handler's answer to a call with these dimensions; empty where it takes it.
std::string answer(const Dims& a, const Dims& b, const Dims& out) {
  OnesCall call(3, 5, 40, "auto");
  call.spec().arguments[0].dims = a;
  call.spec().arguments[1].dims = b;
  call.spec().results[0].dims = out;
  FakeRuntime runtime(Temper::kInline, 2);
  CallFrame frame(call.spec(), FakeRuntime::api(), runtime.context());
  const std::unique_ptr<XLA_FFI_Error> error(ffi_glue::gemm_handler(frame.get()));
  return error ? error->message : "";
}

void check_says(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) {
    MMAEMU_CHECK(text.find(part) != std::string::npos, text, part);
  }
}

void check_ranks() {
  for (const Dims& dims : {Dims{}, Dims{40}}) {
    check_says(answer(dims, dims, dims), {"the same number of dimensions, two or more"});
  }
  check_says(answer({40}, {5, 40}, {5}), {"a has shape (40) and the output (5);"});
  check_says(answer({}, {5, 40}, {}), {"a has shape () and the output ();"});
}

void check_shapes() {
  MMAEMU_CHECK(answer({3, 40}, {5, 40}, {3, 5}).empty());
  check_says(answer({3, 40}, {5, 41}, {3, 5}), {"b has shape (5, 41), which does not fit"});
  check_says(answer({2, 3, 40}, {4, 5, 40}, {2, 3, 5}), {"b has shape (4, 5, 40), which does"});
}

// Nothing is computed: there are no columns.
void check_sizes() {
  constexpr int64_t kMost = ffi_glue::kMaxBytes / 4;  // of fp32
  MMAEMU_CHECK(answer({kMost, 0}, {0, 0}, {kMost, 0}).empty());
  check_says(answer({kMost + 1, 0}, {0, 0}, {kMost + 1, 0}),
             {"the output has shape (288230376151711745, 0), which no memory holds"});
  check_says(answer({3, 40}, {-1, 40}, {3, -1}), {"the output has shape (3, -1), which no memory"});
  check_says(answer({0, -1}, {0, -1}, {0, 0}), {"a has shape (0, -1), which no memory holds"});
}

}  // namespace
}  // namespace mmaemu::testing

int main() {
  using namespace mmaemu::testing;
  check_ranks();
  check_shapes();
  check_sizes();
  return finish();
}
