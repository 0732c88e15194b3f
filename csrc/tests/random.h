// A reproducible source of test inputs (SplitMix64).
#pragma once

#include <cstddef>
#include <cstdint>

namespace mmaemu::testing {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  uint32_t bits() { return static_cast<uint32_t>(next() >> 32); }
  // Uniform in [0, count).
  int64_t below(int64_t count) {
    return static_cast<int64_t>(next() % static_cast<uint64_t>(count));
  }
  // Uniform in [low, high].
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool one_in(int64_t count) { return below(count) == 0; }

  template <typename Container>
  const auto& pick(const Container& values) {
    return values[static_cast<std::size_t>(below(static_cast<int64_t>(values.size())))];
  }

 private:
  uint64_t state_;
};

}  // namespace mmaemu::testing
