// XLA:CPU calls handlers, and runs their pool tasks, with subnormals flushed (MXCSR = 0x9fe2). The
// guard gives a scope the IEEE environment (round to nearest even, subnormals kept, exceptions
// masked) and restores the caller's. It belongs in every task body: clearing the flags in the
// handler does not reach the pool's threads.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif defined(__aarch64__)
#else
#include <cfenv>
#endif

namespace mmaemu::cpu {

#if defined(__x86_64__)

inline uint64_t read_fp_control() { return _mm_getcsr(); }
inline void write_fp_control(uint64_t value) { _mm_setcsr(static_cast<uint32_t>(value)); }
inline constexpr uint64_t kIeeeControl = 0x1F80;        // masks set, no FTZ, no DAZ, nearest even
inline constexpr uint64_t kTowardZeroControl = 0x7F80;  // as above, rounding toward zero

#elif defined(__aarch64__)

inline uint64_t read_fp_control() {
  uint64_t value;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
// The clobber keeps loads and stores, and with them the arithmetic in between, on their side.
inline void write_fp_control(uint64_t value) {
  asm volatile("msr fpcr, %0" : : "r"(value) : "memory");
}
// Nearest even; nothing flushed (FZ, FZ16, FIZ), no alternate handling (AH), no traps.
inline constexpr uint64_t kIeeeControl = 0;
inline constexpr uint64_t kTowardZeroControl = uint64_t{3} << 22;

#else

inline uint64_t read_fp_control() { return static_cast<uint64_t>(std::fegetround()); }
inline void write_fp_control(uint64_t value) { std::fesetround(static_cast<int>(value)); }
inline constexpr uint64_t kIeeeControl = FE_TONEAREST;
inline constexpr uint64_t kTowardZeroControl = FE_TOWARDZERO;

#endif

class ScopedFpControl {
 public:
  explicit ScopedFpControl(uint64_t value) : saved_(read_fp_control()) { write_fp_control(value); }
  ~ScopedFpControl() { write_fp_control(saved_); }
  ScopedFpControl(const ScopedFpControl&) = delete;
  ScopedFpControl& operator=(const ScopedFpControl&) = delete;

 private:
  uint64_t saved_;
};

class ScopedIeeeEnv : public ScopedFpControl {
 public:
  ScopedIeeeEnv() : ScopedFpControl(kIeeeControl) {}
};

}  // namespace mmaemu::cpu
