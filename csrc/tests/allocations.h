// operator new of the whole program, counted, and failing on request. For one source file of a
// test.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace mmaemu::testing {

// Live blocks, and all that were ever asked for.
inline std::atomic<int64_t> live_blocks{0};
inline std::atomic<int64_t> requests{0};

// Which requests fail: those from number `first` on that have `least` bytes or more; `once`: that
// one alone.
struct Failure {
  std::atomic<int64_t> first{-1};
  std::atomic<int64_t> least{0};
  std::atomic<bool> once{true};
  std::atomic<int64_t> failed{0};
};
inline Failure failure;

inline void fail_from(int64_t request, int64_t least, bool once) {
  failure.least = least;
  failure.once = once;
  failure.failed = 0;
  failure.first = requests + request;
}
// How many requests failed meanwhile.
inline int64_t stop_failing() {
  failure.first = -1;
  return failure.failed;
}

inline bool is_to_fail(size_t size) {
  const int64_t number = requests++;
  const int64_t first = failure.first;
  if (first < 0 || number < first || static_cast<int64_t>(size) < failure.least) return false;
  if (failure.once && failure.failed != 0) return false;
  ++failure.failed;
  return true;
}

inline void* allocate(size_t size, size_t alignment) {
  if (is_to_fail(size)) throw std::bad_alloc();
  const size_t rounded = (size + alignment - 1) / alignment * alignment;
  void* p = alignment <= alignof(std::max_align_t) ? std::malloc(size == 0 ? 1 : size)
                                                   : std::aligned_alloc(alignment, rounded);
  if (p == nullptr) throw std::bad_alloc();
  ++live_blocks;
  return p;
}

inline void release(void* p) noexcept {
  if (p == nullptr) return;
  --live_blocks;
  std::free(p);
}

}  // namespace mmaemu::testing

void* operator new(size_t size) { return mmaemu::testing::allocate(size, 1); }
void* operator new(size_t size, std::align_val_t alignment) {
  return mmaemu::testing::allocate(size, static_cast<size_t>(alignment));
}
void operator delete(void* p) noexcept { mmaemu::testing::release(p); }
void operator delete(void* p, size_t) noexcept { mmaemu::testing::release(p); }
void operator delete(void* p, std::align_val_t) noexcept { mmaemu::testing::release(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { mmaemu::testing::release(p); }
