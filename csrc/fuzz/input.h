// A fuzzer's bytes as choices. What is past their end is zero, so every input means something.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mmaemu::fuzz {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}

  bool empty() const { return at_ == end_; }
  uint8_t byte() { return empty() ? uint8_t{0} : *at_++; }
  bool flag() { return (byte() & 1) != 0; }
  uint64_t bits(int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; ++i) value = value << 8 | byte();
    return value;
  }
  uint32_t word() { return static_cast<uint32_t>(bits(4)); }

  // In [0, count), from one byte where one is enough.
  int64_t below(int64_t count) {
    const uint64_t value = count <= 256 ? byte() : bits(8);
    return static_cast<int64_t>(value % static_cast<uint64_t>(count));
  }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool one_in(int64_t count) { return below(count) == count - 1; }

  template <typename Container>
  const auto& pick(const Container& values) {
    return values[static_cast<size_t>(below(static_cast<int64_t>(values.size())))];
  }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
};

}  // namespace mmaemu::fuzz
