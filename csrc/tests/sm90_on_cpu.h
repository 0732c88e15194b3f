// cuda/sm90.h for the CPU: copies happen at once, warpgroup multiply-adds as late as they may, when
// they are waited for, and barriers count as theirs do. The layouts are the hardware's: swizzled
// lines, descriptors, accumulator registers. What a kernel may not rely on ends the program: a
// buffer that is written again before every consumer warp has read it, a second arrival of a warp.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "numerics/block_fma.h"
#include "numerics/specials.h"
#include "tests/cuda_on_cpu.h"
#include "tests/models.h"

namespace mmaemu::cuda {

struct OperandMap {
  const uint8_t* codes;
  int64_t lines;
  int64_t depth;
  int64_t line_stride;
  int box_lines;
};

inline cudaError_t make_operand_map(OperandMap& map, const uint8_t* codes, int64_t lines,
                                    int64_t depth, int64_t line_stride, int box_lines) {
  const bool aligned = reinterpret_cast<uintptr_t>(codes) % 16 == 0 && line_stride % 16 == 0;
  if (!aligned || box_lines > 256) return cudaErrorInvalidConfiguration;
  map = {codes, lines, depth, line_stride, box_lines};
  return cudaSuccess;
}

inline uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(at) - dynamic_shared());
}

[[noreturn]] inline void give_up(const char* what) {
  std::printf("sm90_on_cpu: %s\n", what);
  std::fflush(stdout);
  std::abort();
}
inline unsigned own_warp() { return cuda_on_cpu::block.thread() / 32; }

// A barrier of hardware: its word in shared memory is a key.
struct HostBarrier {
  int expected = 0;
  int pending = 0;
  int64_t bytes = 0;
  uint32_t phase = 0;
  uint32_t warps = 0;  // that have arrived in this phase
  int64_t block = 0;

  void arrive() {
    if ((warps >> own_warp() & 1) != 0) give_up("a warp arrives twice in one phase of a barrier");
    warps |= 1u << own_warp();
    if (--pending < 0) give_up("more arrivals than a barrier expects");
    check();
  }
  void check() {
    if (pending != 0 || bytes != 0) return;
    phase ^= 1;
    pending = expected;
    warps = 0;
  }
};
inline std::map<const uint64_t*, HostBarrier> host_barriers;

// What the copy engine has written, by its place in shared memory.
struct HostBox {
  uint32_t bytes;
  uint32_t readers;  // warps
};
inline std::map<uint32_t, HostBox> host_boxes;
inline constexpr uint32_t kConsumerMask = 0xFF;  // two warpgroups

inline void barrier_init(uint64_t* barrier, int arrivals) {
  const int64_t block = cuda_on_cpu::block.number();
  if (host_barriers[barrier].block == block) give_up("a barrier is set up twice");
  host_barriers[barrier] = {arrivals, arrivals, 0, 0, 0, block};
}
inline void barrier_arrive(uint64_t* barrier) { host_barriers[barrier].arrive(); }
inline void barrier_expect(uint64_t* barrier, uint32_t bytes) {
  host_barriers[barrier].bytes += bytes;
  barrier_arrive(barrier);
}
inline void barrier_wait(uint64_t* barrier, uint32_t phase) {
  while (host_barriers[barrier].phase == phase) cuda_on_cpu::block.spin();
}
inline void named_barrier(int id, int threads) {
  cuda_on_cpu::block.wait(64 + id, static_cast<unsigned>(threads));
}

// 128-byte swizzling: which 16 of a line's bytes come first depends on the line.
inline uint32_t swizzled(uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

inline void copy_box(void* to, const OperandMap& map, int64_t line, int64_t k, uint64_t* barrier) {
  const uint32_t start = shared_address(to);
  if (start % 1024 != 0) give_up("a box that is not aligned");
  const auto before = host_boxes.find(start);
  if (before != host_boxes.end() && before->second.readers != kConsumerMask) {
    give_up("codes are overwritten before every consumer warp has read them");
  }
  host_boxes[start] = {128u * static_cast<uint32_t>(map.box_lines), 0};
  for (int i = 0; i < map.box_lines; ++i) {
    for (int j = 0; j < 128; ++j) {
      const bool inside = line + i < map.lines && k + j < map.depth;
      dynamic_shared()[swizzled(start + static_cast<uint32_t>(128 * i + j))] =
          inside ? map.codes[(line + i) * map.line_stride + k + j] : 0;
    }
  }
  host_barriers[barrier].bytes -= 128 * map.box_lines;
  host_barriers[barrier].check();
}

// Executed by all threads of a warpgroup.
template <int kRegisters>
void set_registers() {
  static_assert(kRegisters % 8 == 0 && 24 <= kRegisters && kRegisters <= 256);
  cuda_on_cpu::block.wait(80 + static_cast<int>(cuda_on_cpu::block.thread() / 128), 128);
}
template <int kRegisters>
void give_registers_up() {
  set_registers<kRegisters>();
}
template <int kRegisters>
void take_registers() {
  set_registers<kRegisters>();
}

// The multiply-adds of a thread that are not done yet, in their groups; the last one is open.
using WgmmaGroups = std::deque<std::vector<std::function<void()>>>;
inline std::vector<WgmmaGroups> wgmma_groups(cuda_on_cpu::kMostThreads);
inline WgmmaGroups& own_groups() { return wgmma_groups[cuda_on_cpu::block.thread()]; }

// The first that every thread of a block calls.
inline void barriers_ready() {
  if (cuda_on_cpu::block.thread() == 0) host_boxes.clear();
  own_groups().clear();
  __syncthreads();
}

inline void wgmma_begin() {}
inline void wgmma_commit() { own_groups().emplace_back(); }
template <int kGroupsLeft>
void wgmma_wait() {
  static_assert(kGroupsLeft >= 0);
  // Some warps come late.
  for (unsigned i = 0; i < own_warp() * 5 % 7; ++i) cuda_on_cpu::block.spin();
  WgmmaGroups& groups = own_groups();
  while (groups.size() > kGroupsLeft + 1) {
    for (const std::function<void()>& multiply_add : groups.front()) multiply_add();
    groups.pop_front();
  }
}

// The box that a descriptor points into has a reader more.
inline void note_reader(uint64_t descriptor) {
  const auto start = static_cast<uint32_t>((descriptor & 0x3FFF) << 4);
  auto box = host_boxes.upper_bound(start);
  if (box == host_boxes.begin()) give_up("a descriptor of what was not copied");
  --box;
  if (start - box->first >= box->second.bytes) give_up("a descriptor beyond a box");
  box->second.readers |= 1u << own_warp();
}

// The first 32 codes of line i of a descriptor's matrix. Swizzling keeps 16 of them together.
inline void copy_codes(uint64_t descriptor, uint32_t i, uint8_t (&codes)[32]) {
  if (descriptor >> 62 != 1) give_up("not 128-byte swizzling");
  const auto start = static_cast<uint32_t>((descriptor & 0x3FFF) << 4);
  const auto group = static_cast<uint32_t>((descriptor >> 32 & 0x3FFF) << 4);
  const uint32_t line = start + i / 8 * group + i % 8 * 128;
  std::memcpy(codes, dynamic_shared() + swizzled(line), 16);
  std::memcpy(codes + 16, dynamic_shared() + swizzled(line + 16), 16);
}

// One block of the instruction that is the model, non-finite operands included.
inline uint32_t native_block(const InstructionModel& model, const FloatFormat& fmt_a,
                             const uint8_t* a, const FloatFormat& fmt_b, const uint8_t* b,
                             uint32_t c) {
  // Padding lines, which are most of a small GEMM's tile, change nothing: no accumulator is -0 or
  // has more bits than R7 leaves.
  const auto up_to = [&](const uint8_t* x, uint32_t magnitude) {
    return std::all_of(x, x + model.nfma, [&](uint8_t code) { return (code & 0x7F) <= magnitude; });
  };
  if (up_to(a, 0) && up_to(b, fmt_b.max_finite)) return c;
  if (up_to(b, 0) && up_to(a, fmt_a.max_finite)) return c;
  SpecialValue special;
  special.add_accumulator(c);
  std::array<Term, 32> terms;
  for (int i = 0; i < model.nfma; ++i) {
    const Decoded x = decode(fmt_a, a[i]);
    const Decoded y = decode(fmt_b, b[i]);
    special.add_product(x, y);
    terms[static_cast<std::size_t>(i)] = multiply_exact(fmt_a, x, fmt_b, y);
  }
  const uint32_t special_bits = special.patch(1);
  if (special_bits != 1) return special_bits;
  return block_step(model, c, [&](int i) { return terms[static_cast<std::size_t>(i)]; });
}

template <int kColumns, bool kIsE5M2A, bool kIsE5M2B>
void wgmma_at_last(float (&d)[kColumns / 2], uint64_t a, uint64_t b, int keep) {
  note_reader(a);
  note_reader(b);
  const unsigned thread = cuda_on_cpu::block.thread() % 128;
  const unsigned first_row = thread / 32 * 16 + thread % 32 / 4;
  for (unsigned i = 0; i < kColumns / 2; ++i) {
    const unsigned row = first_row + 8 * (i % 4 / 2);
    const unsigned column = i / 4 * 8 + 2 * (thread % 4) + i % 2;
    uint8_t codes_a[32];
    uint8_t codes_b[32];
    copy_codes(a, row, codes_a);
    copy_codes(b, column, codes_b);
    d[i] = __uint_as_float(native_block(testing::kEarly32, kIsE5M2A ? kE5M2 : kE4M3, codes_a,
                                        kIsE5M2B ? kE5M2 : kE4M3, codes_b,
                                        keep ? __float_as_uint(d[i]) : 0));
  }
}

template <int kColumns, bool kIsE5M2A, bool kIsE5M2B>
void wgmma(float (&d)[kColumns / 2], uint64_t a, uint64_t b, int keep) {
  ++wgmma_calls;
  if (own_groups().empty()) own_groups().emplace_back();
  own_groups().back().push_back(
      [&d, a, b, keep] { wgmma_at_last<kColumns, kIsE5M2A, kIsE5M2B>(d, a, b, keep); });
}

// mma.sync m16n8k32: two chained blocks of 16.
template <bool kIsE5M2A, bool kIsE5M2B>
void mma_fp8_16x8x32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const uint32_t own[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  const uint32_t* all = exchange_in_warp(own);
  const unsigned lane = cuda_on_cpu::block.thread() % 32;
  for (unsigned e = 0; e < 4; ++e) {
    const unsigned column = 2 * (lane % 4) + e % 2;
    for (unsigned block = 0; block < 2; ++block) {
      uint8_t codes_a[16];
      uint8_t codes_b[16];
      for (unsigned pair = 0; pair < 4; ++pair) {
        std::memcpy(codes_a + 4 * pair, all + (lane / 4 * 4 + pair) * 6 + 2 * block + e / 2, 4);
        std::memcpy(codes_b + 4 * pair, all + (column * 4 + pair) * 6 + 4 + block, 4);
      }
      d[e] =
          __uint_as_float(native_block(testing::kEarly16, kIsE5M2A ? kE5M2 : kE4M3, codes_a,
                                       kIsE5M2B ? kE5M2 : kE4M3, codes_b, __float_as_uint(d[e])));
    }
  }
  leave_exchange();
}

}  // namespace mmaemu::cuda
