// Address space far larger than memory: pages that nobody writes cost nothing.
#pragma once

#include <sys/mman.h>

#include <cstdint>

namespace mmaemu::testing {

class SparseMemory {
 public:
  explicit SparseMemory(int64_t bytes) : size_(static_cast<size_t>(bytes)) {
    void* p = mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    data_ = p == MAP_FAILED ? nullptr : static_cast<uint8_t*>(p);
  }
  ~SparseMemory() {
    if (data_ != nullptr) munmap(data_, size_);
  }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;

  // Zeros at first; null where the system limits address space.
  uint8_t* data() const { return data_; }

 private:
  size_t size_;
  uint8_t* data_;
};

}  // namespace mmaemu::testing
