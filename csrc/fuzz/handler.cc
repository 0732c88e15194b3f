// The GEMM handler on any call frame: it refuses exactly the calls that gemm_reading.h refuses, and
// writes exactly the bytes of the definition for all others. It touches nothing outside its
// buffers, of a refused or empty call not even these, and leaves the caller's floating-point mode
// alone.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "cpu/ieee_env.h"
#include "ffi/cpu_handlers.h"
#include "fuzz/draw_call.h"
#include "fuzz/fail.h"
#include "fuzz/fenced_memory.h"
#include "fuzz/gemm_reading.h"
#include "fuzz/input.h"
#include "fuzz/targets.h"
#include "tests/call_frame.h"
#include "tests/fake_xla.h"
#include "tests/fp_mode.h"
#include "tests/operand_families.h"
#include "tests/random.h"
#include "xla/ffi/api/c_api.h"

namespace mmaemu::fuzz {
namespace {

constexpr int64_t kCapacity = 1 << 18;  // bytes of a buffer that is really there
constexpr int64_t kMaxProducts = 1 << 15;
constexpr int64_t kPooledProducts = 1 << 19;  // seldom: above 2^18 the pool is used
constexpr int64_t kNaiveProducts = 1 << 11;   // above: the portable kernel is what is compared with
constexpr size_t kGuard = 64;
constexpr uint8_t kUntouched = 0xA5;

// The regions of one call's buffers, made once.
const FencedMemory& region(size_t index) {
  static const auto kRegions = [] {
    std::array<std::unique_ptr<FencedMemory>, 16> regions;
    for (auto& region : regions) region = std::make_unique<FencedMemory>(kCapacity + kGuard);
    return regions;
  }();
  return *kRegions[index % kRegions.size()];
}

// What a buffer occupies; nothing where it is larger than what is really there.
std::optional<size_t> size_of(const BufferSpec& buffer) {
  constexpr int64_t kWidest = 16;  // of the dtypes that no operand of a right call has
  const std::optional<FloatFormat> format = read_format(buffer.dtype);
  const auto bytes = addressable_bytes(buffer, format ? format->bits() / 8 : kWidest);
  if (!bytes || *bytes > kCapacity) return std::nullopt;
  return static_cast<size_t>(*bytes);
}

constexpr std::array<uint32_t, 12> kFloats{0x3F800000u, 0xBE2AAAABu, 0x35800000u, 0x00000001u,
                                           0x7F7FFFFFu, 0x80000000u, 0x7FC00000u, 0x7F800000u,
                                           0xFF800000u, 0x00000000u, 0x41200000u, 0x0F800000u};

void fill_fp32(testing::Random& random, uint8_t* data, size_t bytes) {
  for (size_t at = 0; at + 4 <= bytes; at += 4) {
    const uint32_t bits = random.one_in(2) ? random.pick(kFloats) : random.bits() & 0xC7FFFFFFu;
    std::memcpy(data + at, &bits, 4);
  }
}

void fill_codes(testing::Random& random, testing::Family family, const BufferSpec& buffer,
                uint8_t* data, size_t bytes, bool is_a) {
  const FloatFormat format = read_format(buffer.dtype).value_or(kE4M3);
  const int64_t depth = buffer.dims.empty() ? 1 : std::max<int64_t>(1, buffer.dims.back());
  testing::CodeSource source(random, family, format, depth, is_a);
  for (size_t at = 0; at < bytes; ++at) data[at] = source.at(static_cast<int64_t>(at) % depth);
}

// Gives every argument its memory and contents. One may share that of the first.
void fill_arguments(Input& input, CallSpec& call) {
  testing::Random random(input.bits(3));
  const testing::Family family = input.pick(testing::kFamilies);
  const bool at_end = input.flag();
  const bool aliased = input.one_in(8);
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    BufferSpec& buffer = call.arguments[i];
    const std::optional<size_t> bytes = size_of(buffer);
    buffer.data = bytes ? region(i).place(*bytes, at_end) : region(i).fence();
    if (!bytes) continue;
    auto* data = static_cast<uint8_t*>(buffer.data);
    if (buffer.dtype == XLA_FFI_DataType_F32) {
      fill_fp32(random, data, *bytes);
    } else {
      fill_codes(random, family, buffer, data, *bytes, i == 0);
    }
    for (int64_t edits = input.below(4); edits > 0 && *bytes > 0; --edits) {
      data[input.below(static_cast<int64_t>(*bytes))] = input.byte();
    }
    const BufferSpec& first = call.arguments[0];
    const bool aligned = reinterpret_cast<uintptr_t>(first.data) % 16 == 0;  // XLA's memory is
    if (aliased && aligned && size_of(first).value_or(0) >= *bytes) buffer.data = first.data;
  }
}

struct Output {
  uint8_t* data;
  size_t size;
  std::vector<uint8_t> guards;  // what is around it on the side without a fence
  uint8_t* guard;

  bool is_untouched() const {
    return std::all_of(data, data + size, [](uint8_t byte) { return byte == kUntouched; });
  }
  bool has_guard() const {
    return std::all_of(guard, guard + kGuard, [](uint8_t byte) { return byte == kUntouched; });
  }
};

Output place_output(Input& input, CallSpec& call) {
  const size_t last = 15;
  Output out{region(last).fence(), 0, {}, region(last).place(kGuard, false)};
  for (BufferSpec& buffer : call.results) {  // a call with several is refused
    const std::optional<size_t> bytes = size_of(buffer);
    if (bytes) {
      const bool at_end = input.flag();
      out.size = *bytes;
      out.data = region(last).place(*bytes, at_end);
      out.guard = at_end ? out.data - kGuard : out.data + *bytes;
    }
    buffer.data = bytes ? out.data : region(last).fence();
  }
  std::memset(out.data, kUntouched, out.size);
  std::memset(out.guard, kUntouched, kGuard);
  return out;
}

// Calls the handler as XLA does, subnormals flushed; the code of its answer.
XLA_FFI_Error_Code call_handler(Input& input, const CallSpec& call) {
  constexpr std::array<testing::Temper, 3> kTempers{
      testing::Temper::kInline, testing::Temper::kLate, testing::Temper::kRefuses};
  testing::FakeRuntime runtime(input.pick(kTempers), input.below(5));
  testing::CallFrame frame(call, testing::FakeRuntime::api(), runtime.context());
  std::unique_ptr<XLA_FFI_Error> error;
  {
    const cpu::ScopedFpControl caller(testing::kXlaFpControl);
    error.reset(ffi_glue::gemm_handler(frame.get()));
    MMAEMU_FUZZ_CHECK(cpu::read_fp_control() == testing::kXlaFpControl, cpu::read_fp_control());
  }
  if (!error) return XLA_FFI_Error_Code_OK;
  MMAEMU_FUZZ_CHECK(!error->message.empty());
  return error->code;
}

std::vector<std::vector<uint8_t>> contents(const CallSpec& call) {
  std::vector<std::vector<uint8_t>> copies;
  for (const BufferSpec& buffer : call.arguments) {
    const auto* data = static_cast<const uint8_t*>(buffer.data);
    copies.emplace_back(data, data + size_of(buffer).value_or(0));
  }
  return copies;
}

void check_refusal(Input& input, const CallSpec& call, const Output& out) {
  const XLA_FFI_Error_Code code = call_handler(input, call);
  const bool refused =
      code == XLA_FFI_Error_Code_INVALID_ARGUMENT || code == XLA_FFI_Error_Code_INTERNAL;
  MMAEMU_FUZZ_CHECK(refused, int64_t{code});
  MMAEMU_FUZZ_CHECK(out.is_untouched());
}

bool is_affordable(Input& input, const GemmReading& r) {
  const int64_t limit = input.one_in(32) ? kPooledProducts : kMaxProducts;
  return r.outputs() * (r.k + r.plan.splits) <= limit;
}

// A call that the handler has to compute; false where it would take too long.
bool check_result(Input& input, const CallSpec& call, const GemmReading& r, const Output& out) {
  if (r.outputs() == 0) {
    const XLA_FFI_Error_Code code = call_handler(input, call);
    MMAEMU_FUZZ_CHECK(code == XLA_FFI_Error_Code_OK, int64_t{code});
    return true;
  }
  const auto there = [](const BufferSpec& buffer) { return size_of(buffer).has_value(); };
  if (!std::all_of(call.arguments.begin(), call.arguments.end(), there) ||
      !there(call.results[0]) || !is_affordable(input, r)) {
    return false;
  }
  const std::vector<std::vector<uint8_t>> before = contents(call);
  const bool is_small = r.outputs() * (r.k + r.plan.splits) <= kNaiveProducts;
  const std::vector<uint8_t> expected = is_small ? naive_bytes(r) : portable_bytes(r);
  const XLA_FFI_Error_Code code = call_handler(input, call);
  MMAEMU_FUZZ_CHECK(code == XLA_FFI_Error_Code_OK, int64_t{code});
  const auto differs = std::mismatch(expected.begin(), expected.end(), out.data);
  MMAEMU_FUZZ_CHECK(differs.first == expected.end(), differs.first - expected.begin(), is_small,
                    r.m, r.n, r.k, r.plan.splits, r.model.nfma, *differs.first, *differs.second);
  MMAEMU_FUZZ_CHECK(contents(call) == before);
  return true;
}

}  // namespace

Outcome fuzz_handler(const uint8_t* data, size_t size) {
  const cpu::ScopedIeeeEnv ieee;
  Input input(data, size);
  CallSpec call = draw_call(input);
  fill_arguments(input, call);
  const Output out = place_output(input, call);
  const std::optional<GemmReading> reading = read_call(call);
  Outcome outcome = Outcome::kRefused;
  if (!reading) {
    check_refusal(input, call, out);
  } else {
    outcome = check_result(input, call, *reading, out) ? Outcome::kComputed : Outcome::kSkipped;
  }
  MMAEMU_FUZZ_CHECK(out.has_guard());
  return outcome;
}

}  // namespace mmaemu::fuzz
