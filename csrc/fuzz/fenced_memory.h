// Memory whose ends are pages that nobody may touch, so that a read or write past a buffer stops
// the process even where no sanitizer watches.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace mmaemu::fuzz {

class FencedMemory {
 public:
  explicit FencedMemory(size_t capacity) : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    capacity_ = (capacity + page_ - 1) / page_ * page_;
    void* all = mmap(nullptr, capacity_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) std::abort();
    begin_ = static_cast<uint8_t*>(all) + page_;
    if (mprotect(begin_, capacity_, PROT_READ | PROT_WRITE) != 0) std::abort();
  }
  ~FencedMemory() { munmap(begin_ - page_, capacity_ + 2 * page_); }
  FencedMemory(const FencedMemory&) = delete;
  FencedMemory& operator=(const FencedMemory&) = delete;

  // `size` bytes right behind the first fence or right before the second one.
  uint8_t* place(size_t size, bool at_end) const {
    return at_end ? begin_ + capacity_ - size : begin_;
  }
  // An address that stops whoever uses it.
  uint8_t* fence() const { return begin_ + capacity_; }

 private:
  size_t page_;
  size_t capacity_;
  uint8_t* begin_;
};

}  // namespace mmaemu::fuzz
