// How much work a test does: every kind of case in every build, fewer of each under a sanitizer and
// under an emulator (MMAEMU_FEWER_CASES).
#pragma once

#include <algorithm>
#include <cstdint>

namespace mmaemu::testing {

#if defined(MMAEMU_FEWER_CASES) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kFewerCases = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kFewerCases = true;
#else
inline constexpr bool kFewerCases = false;
#endif
#else
inline constexpr bool kFewerCases = false;
#endif

// A number of random cases.
constexpr int64_t cases(int64_t count) {
  return kFewerCases ? std::max<int64_t>(1, count / 16) : count;
}

}  // namespace mmaemu::testing
