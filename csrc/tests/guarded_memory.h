// operator new of the whole program: every block ends where a page begins that nobody may touch, so
// that a read or write beyond its end is a fault and not a matter of chance. For one source file of
// a test.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <new>

namespace mmaemu::testing {

// A mapping: one page for its own size, the pages of the block, the page without access.
inline void* allocate_guarded(size_t size, size_t alignment) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t rounded = (size + alignment - 1) / alignment * alignment;
  const size_t data = (rounded + page - 1) / page * page;
  const size_t mapped = data + 2 * page;
  void* p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  auto* first = static_cast<uint8_t*>(p);
  uint8_t* guard = first + page + data;
  if (mprotect(guard, page, PROT_NONE) != 0) throw std::bad_alloc();
  *static_cast<size_t*>(p) = mapped;
  return guard - rounded;
}

// The block starts in its first page of data (an empty one at the guard), which the size precedes.
inline void release_guarded(void* block) noexcept {
  if (block == nullptr) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = reinterpret_cast<uintptr_t>(block) / page * page - page;
  munmap(reinterpret_cast<void*>(first), *reinterpret_cast<size_t*>(first));
}

}  // namespace mmaemu::testing

void* operator new(size_t size) {
  return mmaemu::testing::allocate_guarded(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(size_t size, std::align_val_t alignment) {
  return mmaemu::testing::allocate_guarded(size, static_cast<size_t>(alignment));
}
void operator delete(void* p) noexcept { mmaemu::testing::release_guarded(p); }
void operator delete(void* p, size_t) noexcept { mmaemu::testing::release_guarded(p); }
void operator delete(void* p, std::align_val_t) noexcept { mmaemu::testing::release_guarded(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept {
  mmaemu::testing::release_guarded(p);
}
