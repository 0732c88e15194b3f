// The tests' only framework: MMAEMU_CHECK counts, says what failed, and finish() is main's result.
// Checks belong to the main thread; tasks hand their findings to it.
#pragma once

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>

namespace mmaemu::testing {

struct Tally {
  int64_t checks = 0;
  int64_t failures = 0;
};
inline Tally tally;

inline constexpr int64_t kMaxReports = 20;  // later failures are counted, not printed

template <typename T>
void print_value(const T& value) {
  if constexpr (std::is_floating_point_v<T>) {
    std::printf(" %a", static_cast<double>(value));
  } else if constexpr (std::is_signed_v<T>) {
    std::printf(" %" PRId64, static_cast<int64_t>(value));
  } else {
    std::printf(" 0x%" PRIx64, static_cast<uint64_t>(value));
  }
}
inline void print_value(const std::string& value) { std::printf(" %s", value.c_str()); }
inline void print_value(const char* value) { std::printf(" %s", value); }

template <typename... Values>
void report_failure(const char* file, int line, const char* condition, const char* names,
                    const Values&... values) {
  if (++tally.failures > kMaxReports) return;
  std::printf("%s:%d: failed: %s\n", file, line, condition);
  if constexpr (sizeof...(values) > 0) {
    std::printf("  %s:", names);
    (print_value(values), ...);
    std::printf("\n");
  }
}

// The exit status of a test: a run that checked nothing has failed.
inline int finish() {
  std::printf("%" PRId64 " checks, %" PRId64 " failures\n", tally.checks, tally.failures);
  return tally.failures != 0 || tally.checks == 0 ? 1 : 0;
}

}  // namespace mmaemu::testing

// The values are evaluated only when the condition is false; unsigned ones are printed in hex.
#define MMAEMU_CHECK(condition, ...)                                              \
  do {                                                                            \
    ++::mmaemu::testing::tally.checks;                                            \
    if (!(condition)) {                                                           \
      ::mmaemu::testing::report_failure(__FILE__, __LINE__, #condition,           \
                                        #__VA_ARGS__ __VA_OPT__(, ) __VA_ARGS__); \
    }                                                                             \
  } while (false)
