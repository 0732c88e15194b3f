// Runs CUDA kernels on the CPU, thread by thread, from their own source: every thread of a block is
// a fiber that yields at barriers and warp-wide instructions. What is undefined on a GPU is made to
// show: shared memory starts as junk, and threads run in another order after each barrier.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(...)

struct uint3 {
  unsigned x, y, z;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
inline uint3 threadIdx, blockIdx, blockDim, gridDim;

using cudaStream_t = void*;
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
};

namespace mmaemu::cuda_on_cpu {

inline constexpr std::size_t kSharedBytes = 232448;  // the most a block gets on any GPU
inline constexpr std::size_t kStackBytes = 64 * 1024;
inline constexpr int kMostThreads = 1024;  // of a block

// One block of threads at a time.
class Block {
 public:
  // Runs body on every thread; false if some wait at a barrier that others never reach.
  bool run(unsigned threads, const std::function<void()>& body) {
    body_ = &body;
    spins_ = 0;
    ++number_;
    std::memset(shared_.data(), 0xA5, shared_.size());
    for (unsigned i = 0; i < threads; ++i) start(i);
    while (step(threads)) {
    }
    for (unsigned i = 0; i < threads; ++i) {
      if (!fibers_[i].done) return false;
    }
    return true;
  }

  // Waits until `count` threads, of which this is one, have come to the barrier `id`.
  void wait(int id, unsigned count) {
    Fiber& own = fibers_[current_];
    if (barriers_.size() <= static_cast<std::size_t>(id)) barriers_.resize(id + 1);
    own.phase = barriers_[id].phase;
    own.barrier = id;
    if (++barriers_[id].arrived == count) {
      barriers_[id].arrived = 0;
      ++barriers_[id].phase;
      ++round_;
      own.barrier = -1;
      return;
    }
    yield();
  }

  // Lets the others run; whoever waits for something that never comes is stopped.
  void spin() {
    constexpr int64_t kTooLong = 100'000'000;
    if (++spins_ > kTooLong) {
      std::printf("cuda_on_cpu: a thread waits for a barrier that nobody completes\n");
      std::abort();
    }
    yield();
  }

  unsigned char* shared() { return shared_.data(); }
  unsigned thread() const { return current_; }
  int64_t number() const { return number_; }  // of the blocks so far
  // What the lanes of a warp hand to each other in a warp-wide instruction.
  uint32_t* exchange(unsigned warp) { return exchange_[warp].data(); }

 private:
  struct Fiber {
    ucontext_t context;
    void* place[5];  // where it goes on, once it has started
    bool started = false;
    std::unique_ptr<unsigned char[]> stack;
    int barrier = -1;
    int64_t phase = 0;
    bool done = false;
    void* fake_stack = nullptr;
  };
  struct Barrier {
    unsigned arrived = 0;
    int64_t phase = 0;
  };

  void start(unsigned i) {
    Fiber& fiber = fibers_[i];
    fiber.barrier = -1;
    fiber.done = false;
    if (fiber.stack) return;  // a fiber runs body after body
    fiber.stack = std::make_unique<unsigned char[]>(kStackBytes);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, &Block::enter, 0);
  }

  // Runs every thread that can run once; whether any could.
  bool step(unsigned threads) {
    bool ran = false;
    // 97 is coprime to every thread count used; the order changes with every barrier.
    for (unsigned n = 0; n < threads; ++n) {
      const unsigned i = static_cast<unsigned>((n * 97 + round_) % threads);
      Fiber& fiber = fibers_[i];
      if (fiber.done) continue;
      if (fiber.barrier >= 0 && barriers_[fiber.barrier].phase == fiber.phase) continue;
      fiber.barrier = -1;
      resume(i);
      ran = true;
    }
    return ran;
  }

  // By jumps: swapcontext asks the kernel for the signal mask, which takes longer than all else.
  // The address sanitizer would take setjmp's for an end of frames.
  [[gnu::noinline, gnu::no_sanitize_address]] void resume(unsigned i) {
    current_ = i;
    threadIdx = {i, 0, 0};
    Fiber& own = fibers_[i];
    if (__builtin_setjmp(main_place_) == 0) {
#if defined(__SANITIZE_ADDRESS__)
      __sanitizer_start_switch_fiber(&main_fake_stack_, own.stack.get(), kStackBytes);
#endif
      if (own.started) jump(own.place);
      own.started = true;
      setcontext(&own.context);
    }
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(main_fake_stack_, nullptr, nullptr);
#endif
  }

  [[gnu::noinline, gnu::no_sanitize_address]] void yield() {
    Fiber& own = fibers_[current_];
    if (__builtin_setjmp(own.place) == 0) {
#if defined(__SANITIZE_ADDRESS__)
      __sanitizer_start_switch_fiber(&own.fake_stack, main_stack_, main_stack_size_);
#endif
      jump(main_place_);
    }
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fibers_[current_].fake_stack, &main_stack_, &main_stack_size_);
#endif
  }

  [[gnu::noinline, gnu::no_sanitize_address]] static void jump(void** place) {
    __builtin_longjmp(place, 1);
  }

  static void enter();

  std::vector<Fiber> fibers_ = std::vector<Fiber>(kMostThreads);  // contexts cannot be moved
  std::vector<Barrier> barriers_;
  std::vector<unsigned char> shared_ = std::vector<unsigned char>(kSharedBytes + 1024);
  std::vector<std::vector<uint32_t>> exchange_ =
      std::vector<std::vector<uint32_t>>(32, std::vector<uint32_t>(32 * 8));
  const std::function<void()>* body_ = nullptr;
  void* main_place_[5]{};
  void* main_fake_stack_ = nullptr;
  unsigned current_ = 0;
  uint64_t round_ = 0;
  int64_t spins_ = 0;
  int64_t number_ = 0;
  const void* main_stack_ = nullptr;
  std::size_t main_stack_size_ = 0;
};

inline Block block;

inline void Block::enter() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &block.main_stack_, &block.main_stack_size_);
#endif
  for (;;) {
    (*block.body_)();
    block.fibers_[block.current_].done = true;
    block.yield();
  }
}

// Double arithmetic on fp32 operands, rounded as asked: the sum of a double and a float with its
// error (TwoSum), moved to the neighbour on the wanted side, then cut to 24 bits. For results that
// are normal fp32 numbers.
enum class Toward { kZero, kPositive };
inline float add_directed(double x, double y, Toward toward) {
  double sum = x + y;
  const double part = sum - x;
  const double error = (x - (sum - part)) + (y - part);
  uint64_t bits = 0;
  std::memcpy(&bits, &sum, 8);
  const bool negative = (bits >> 63) != 0;
  // Toward zero in double first: the sum of magnitude bits and error then says what was cut.
  if (error != 0 && (error < 0) != negative) --bits;
  const uint64_t cut = bits & ((uint64_t{1} << 29) - 1);
  const bool inexact = cut != 0 || error != 0;
  bits -= cut;
  if (toward == Toward::kPositive && inexact && !negative) bits += uint64_t{1} << 29;
  std::memcpy(&sum, &bits, 8);
  const float result = static_cast<float>(sum);
  if (static_cast<double>(result) != sum || std::fabs(result) < 0x1p-126f) {
    std::printf("cuda_on_cpu: %a is not a normal fp32 number\n", sum);
    std::abort();
  }
  return result;
}

}  // namespace mmaemu::cuda_on_cpu

inline void __syncwarp() {
  mmaemu::cuda_on_cpu::Block& block = mmaemu::cuda_on_cpu::block;
  block.wait(static_cast<int>(1 + block.thread() / 32), 32);
}
inline void __syncthreads() { mmaemu::cuda_on_cpu::block.wait(0, blockDim.x); }

inline uint32_t __float_as_uint(float x) {
  uint32_t bits = 0;
  std::memcpy(&bits, &x, 4);
  return bits;
}
inline float __uint_as_float(uint32_t bits) {
  float x = 0;
  std::memcpy(&x, &bits, 4);
  return x;
}

inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline float __fadd_rz(float x, float y) {
  return mmaemu::cuda_on_cpu::add_directed(x, y, mmaemu::cuda_on_cpu::Toward::kZero);
}
inline float __fadd_ru(float x, float y) {
  return mmaemu::cuda_on_cpu::add_directed(x, y, mmaemu::cuda_on_cpu::Toward::kPositive);
}
// The product of two fp32 numbers is exact in double.
inline float __fmaf_rz(float x, float y, float z) {
  return mmaemu::cuda_on_cpu::add_directed(static_cast<double>(x) * y, z,
                                           mmaemu::cuda_on_cpu::Toward::kZero);
}

inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector) {
  const uint64_t bytes = uint64_t{y} << 32 | x;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t pick = selector >> (4 * i) & 0xF;
    if (pick >= 8) std::abort();  // sign replication is not used
    result |= static_cast<uint32_t>(bytes >> (8 * pick) & 0xFF) << (8 * i);
  }
  return result;
}
inline uint32_t __dp4a(uint32_t x, uint32_t y, uint32_t sum) {
  for (int i = 0; i < 4; ++i) sum += (x >> (8 * i) & 0xFF) * (y >> (8 * i) & 0xFF);
  return sum;
}
inline uint32_t atomicOr(uint32_t* at, uint32_t bits) {
  const uint32_t old = *at;
  *at |= bits;
  return old;
}

namespace mmaemu::cuda {

inline unsigned char* dynamic_shared() {
  const auto address = reinterpret_cast<uintptr_t>(cuda_on_cpu::block.shared());
  return reinterpret_cast<unsigned char*>((address + 1023) / 1024 * 1024);
}

// All lanes of a warp bring `words`; then each sees every lane's.
template <std::size_t kWords>
const uint32_t* exchange_in_warp(const uint32_t (&words)[kWords]) {
  cuda_on_cpu::Block& block = cuda_on_cpu::block;
  const unsigned warp = block.thread() / 32;
  uint32_t* all = block.exchange(warp);
  std::memcpy(all + block.thread() % 32 * kWords, words, sizeof(words));
  __syncwarp();
  return all;
}
inline void leave_exchange() { __syncwarp(); }

// The sum as a tensor core may form it: terms aligned to the largest and cut to `kept` bits below
// it, one by one. What a kernel makes of it must not depend on `kept`.
inline int kept_bits = 24;
inline float tensor_core_sum(float c, const double* products, int count) {
  double largest = std::fabs(static_cast<double>(c));
  for (int i = 0; i < count; ++i) largest = std::fmax(largest, std::fabs(products[i]));
  if (largest == 0) return 0.0f;
  const double unit = std::ldexp(1.0, std::ilogb(largest) - kept_bits);
  double sum = std::trunc(c / unit);
  for (int i = 0; i < count; ++i) sum += std::trunc(products[i] / unit);
  return static_cast<float>(sum * unit);
}

inline void mma_bf16_16x8x8(float (&d)[4], const uint32_t (&a)[2], uint32_t b) {
  const uint32_t own[3] = {a[0], a[1], b};
  const uint32_t* all = exchange_in_warp(own);
  const unsigned lane = cuda_on_cpu::block.thread() % 32;
  const auto bf16 = [](uint32_t word, int i) {
    return static_cast<double>(__uint_as_float((word >> (16 * i) & 0xFFFF) << 16));
  };
  for (unsigned e = 0; e < 4; ++e) {
    const unsigned column = 2 * (lane % 4) + e % 2;
    double products[8];
    for (unsigned k = 0; k < 8; ++k) {
      const uint32_t word_a = all[(lane / 4 * 4 + k / 2) * 3 + e / 2];
      const uint32_t word_b = all[(column * 4 + k / 2) * 3 + 2];
      products[k] = bf16(word_a, k % 2) * bf16(word_b, k % 2);
    }
    d[e] = tensor_core_sum(d[e], products, 8);
  }
  leave_exchange();
}

// How often a thread has asked for a warpgroup multiply-add (sm90_on_cpu.h).
inline int64_t wgmma_calls = 0;

// Runs the whole grid before it returns, or as many blocks of it: a kernel whose blocks take turns
// at the tasks must not mind.
inline int64_t most_blocks = 0x7FFFFFFF;
template <typename... Parameters>
cudaError_t launch(void (*kernel)(Parameters...), int64_t blocks, int threads, std::size_t shared,
                   cudaStream_t, std::type_identity_t<Parameters>... arguments) {
  const bool fits = 1 <= blocks && blocks <= 0x7FFFFFFF && 1 <= threads &&
                    threads <= cuda_on_cpu::kMostThreads && shared <= cuda_on_cpu::kSharedBytes;
  if (!fits) return cudaErrorInvalidConfiguration;
  blocks = std::min(blocks, most_blocks);
  gridDim = {static_cast<unsigned>(blocks), 1, 1};
  blockDim = {static_cast<unsigned>(threads), 1, 1};
  const std::function<void()> body = [&] { kernel(arguments...); };
  for (int64_t i = 0; i < blocks; ++i) {
    blockIdx = {static_cast<unsigned>(i), 0, 0};
    if (!cuda_on_cpu::block.run(blockDim.x, body)) {
      std::printf("cuda_on_cpu: some threads of a block never reached a barrier\n");
      std::abort();
    }
  }
  return cudaSuccess;
}

}  // namespace mmaemu::cuda
