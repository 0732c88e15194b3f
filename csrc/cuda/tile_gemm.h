// One output tile per block of threads: walks the plan (R10 to R13), brings the codes of every step
// into shared memory, patches specials (R14) and applies the epilogue (R16 to R19). What a step
// computes is the Step's: IeeeStep, or an instruction that is the model.
#pragma once

#include <cstdint>

#include "cuda/byte_lanes.h"
#include "cuda/fragment.h"
#include "cuda/gemm.h"
#include "cuda/output_code.h"
#include "cuda/portable_kernel.h"
#include "cuda/runtime.h"
#include "numerics/specials.h"

namespace mmaemu::cuda {

// Which split comes n-th in the order of combine_splits, and what becomes of its partial.
struct SplitTurn {
  enum class Then { kAssign, kAdd, kOpenSlot, kCloseSlot };
  int64_t split;
  Then then;
};

MMAEMU_HD constexpr SplitTurn split_turn(const AccumulationPlan& plan, int64_t n) {
  using Then = SplitTurn::Then;
  if (!plan.pairwise) return {n, n == 0 ? Then::kAssign : Then::kAdd};
  const int64_t last = plan.splits - 1;
  if (n == 0) return {last, Then::kAssign};
  const int64_t half = ceil_div(plan.splits, 2);
  const int64_t pairs = last - half;  // slots of two partials come first
  if (n > 2 * pairs) return {n - 1 - pairs, Then::kAdd};
  const int64_t slot = (n - 1) / 2;
  return n % 2 == 1 ? SplitTurn{slot, Then::kOpenSlot} : SplitTurn{slot + half, Then::kCloseSlot};
}

template <int kWarpsM, int kWarpsN>
struct TileShape {
  static constexpr int kRows = kWarpRows * kWarpsM;
  static constexpr int kColumns = kWarpColumns * kWarpsN;
  static constexpr int kThreads = 32 * kWarpsM * kWarpsN;
  static constexpr int kWordsA = kRows * kWords / kThreads;  // per thread and step
  static constexpr int kWordsB = kColumns * kWords / kThreads;
  static_assert(kRows * kWords % kThreads == 0 && kThreads % kWords == 0);
  static_assert(kWordsB % 2 == 0, "a thread takes two columns of a [K, N] operand");
};

template <typename Step, typename Shape>
struct TileMemory {
  union {
    typename Step::template Shared<Shape::kRows, Shape::kColumns> operands;
    struct {
      uint32_t acc[Shape::kRows][Shape::kColumns + 4];
    } out;
  };
  uint32_t flags_a[Shape::kRows];
  uint32_t flags_b[Shape::kColumns];
};

template <typename Step, typename Shape>
class TileGemm {
 public:
  using Memory = TileMemory<Step, Shape>;

  __device__ TileGemm(const Gemm& gemm, Memory& memory)
      : g_(gemm),
        s_(memory),
        thread_(static_cast<int>(threadIdx.x)),
        warp_row_(thread_ / 32 % kWarpsM * kWarpRows),
        warp_column_(thread_ / 32 / kWarpsM * kWarpColumns) {}

  MMAEMU_HD static int64_t tasks(const Gemm& g) {
    return g.batches * ceil_div(g.m, Shape::kRows) * ceil_div(g.n, Shape::kColumns);
  }

  __device__ void run(int64_t task) {
    const int64_t row_tiles = ceil_div(g_.m, Shape::kRows);
    const int64_t column_tiles = ceil_div(g_.n, Shape::kColumns);
    batch_ = task / (row_tiles * column_tiles);
    row_ = task % row_tiles * Shape::kRows;
    column_ = task / row_tiles % column_tiles * Shape::kColumns;
    a_ = g_.a + g_.offset(g_.a_strides, batch_) + (row_ + line_a(0)) * g_.k;
    b_ = g_.b + g_.offset(g_.b_strides, batch_) + (column_ + line_b(0)) * g_.b_stride_n;
    // Codes are loaded together where all such loads are aligned.
    const int64_t b_line = g_.b_stride_k == 1 ? g_.k : g_.n;
    const auto b_address = reinterpret_cast<uintptr_t>(b_) | static_cast<uintptr_t>(b_line);
    a_aligned_ = (reinterpret_cast<uintptr_t>(a_) | static_cast<uintptr_t>(g_.k)) % 4 == 0;
    b_aligned_ = b_address % (g_.b_stride_k == 1 ? 4 : 2) == 0;
    __syncthreads();  // the previous task has read its flags
    for (int i = thread_; i < Shape::kRows; i += Shape::kThreads) s_.flags_a[i] = 0;
    for (int i = thread_; i < Shape::kColumns; i += Shape::kThreads) s_.flags_b[i] = 0;
    Fragment total;
    accumulate(total);
    __syncthreads();
    store(total);
  }

 private:
  static constexpr int kWarpsM = Shape::kRows / kWarpRows;
  static constexpr int kColumnPairs = Shape::kColumns / 2;

  // kStep own elements from p on; elements from `count` on are zero padding.
  struct StepPlace {
    int64_t p;
    int64_t end;  // of the chain
    int64_t k;
    int64_t count;
    bool contiguous;  // in K
  };

  __device__ StepPlace place_of(const SplitRange& range, int64_t p, int64_t end) const {
    StepPlace place{p, end, range.k_of(p), end - p, true};
    if (range.tile_k != 0 && place.count > range.tile_k - p % range.tile_k) {
      const int64_t rest = range.tile_k - p % range.tile_k;
      if (rest < kStep) place.contiguous = false;
    }
    const int64_t left = g_.k - place.k;
    if (left < place.count) place.count = left;
    return place;
  }

  __device__ void accumulate(Fragment& total) {
    clear(total);
    Fragment slot = total;
    for (int64_t n = 0; n < g_.plan.splits; ++n) {
      const SplitTurn turn = split_turn(g_.plan, n);
      Fragment partial;
      run_split(turn.split, partial);
      switch (turn.then) {
        case SplitTurn::Then::kAssign:
          total = partial;
          break;
        case SplitTurn::Then::kAdd:
          add(partial, total);
          break;
        case SplitTurn::Then::kOpenSlot:
          slot = partial;
          break;
        case SplitTurn::Then::kCloseSlot:
          add(partial, slot);
          add(slot, total);
          break;
      }
    }
  }

  // One chain (fast), or chains added serially (slow), of which the first is assigned: +0 + x is x
  // for every accumulator x, none of which is -0 (R7).
  __device__ void run_split(int64_t split, Fragment& partial) {
    clear(partial);
    const SplitRange range = split_range(g_.plan, g_.k, split);
    const int64_t chunk = g_.plan.chunk_k == 0 ? range.length : g_.plan.chunk_k;
    for (int64_t p = 0; p < range.length; p += chunk) {
      const int64_t end = p + chunk < range.length ? p + chunk : range.length;
      Fragment chain;
      clear(chain);
      run_chain(range, p, end, chain);
      Step::finish(chain);
      if (p == 0) {
        partial = chain;
      } else {
        add(chain, partial);
      }
    }
  }

  __device__ void run_chain(const SplitRange& range, int64_t begin, int64_t end, Fragment& chain) {
    uint32_t words_a[Shape::kWordsA];
    uint32_t words_b[Shape::kWordsB];
    fetch(range, place_of(range, begin, end), words_a, words_b);
#pragma unroll 1
    for (int64_t p = begin; p < end; p += kStep) {
      __syncthreads();  // the previous step has been computed
      put(words_a, words_b);
      __syncthreads();
      // The next codes travel while this step is computed.
      if (p + kStep < end) fetch(range, place_of(range, p + kStep, end), words_a, words_b);
      Step::run(s_.operands, warp_row_, warp_column_, chain);
    }
  }

  __device__ __forceinline__ void fetch(const SplitRange& range, const StepPlace& place,
                                        uint32_t (&words_a)[Shape::kWordsA],
                                        uint32_t (&words_b)[Shape::kWordsB]) const {
    fetch_lines(range, place, a_, a_aligned_, g_.m - row_ - line_a(0), words_a);
    if (g_.b_stride_k == 1) {
      fetch_lines(range, place, b_, b_aligned_, g_.n - column_ - line_b(0), words_b);
    } else {
      fetch_kn(range, place, words_b);
    }
  }

  // Own words of an operand that is contiguous in K: every kLineStep-th line from `first` on, of
  // which `lines` lines exist.
  static constexpr int kLineStep = Shape::kThreads / kWords;
  template <int kCount>
  __device__ __forceinline__ void fetch_lines(const SplitRange& range, const StepPlace& place,
                                              const uint8_t* first, bool aligned, int64_t lines,
                                              uint32_t (&words)[kCount]) const {
    const int word = thread_ % kWords;
    const bool together =
        place.contiguous && aligned && place.k % 4 == 0 && 4 * word + 4 <= place.count;
    const uint8_t* at = first + place.k + 4 * word;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      words[i] = 0;
      if (i * kLineStep < lines) {
        const uint8_t* line = first + i * kLineStep * g_.k;
        words[i] = together ? *reinterpret_cast<const uint32_t*>(at + i * kLineStep * g_.k)
                            : byte_by_byte(range, place, g_.k, line, word);
      }
    }
  }

  // The index in K of element `offset` of a step, or -1 for padding.
  __device__ static int64_t index_of(SplitRange range, StepPlace place, int64_t depth, int offset) {
    if (place.contiguous) return offset < place.count ? place.k + offset : -1;
    if (place.p + offset >= place.end) return -1;
    const int64_t k = range.k_of(place.p + offset);
    return k < depth ? k : -1;
  }

  __device__ __noinline__ static uint32_t byte_by_byte(SplitRange range, StepPlace place,
                                                       int64_t depth, const uint8_t* line,
                                                       int word) {
    uint32_t codes = 0;
    for (int i = 0; i < 4; ++i) {
      const int64_t k = index_of(range, place, depth, 4 * word + i);
      if (k >= 0) codes |= uint32_t{line[k]} << (8 * i);
    }
    return codes;
  }

  // A [K, N] operand: four rows of two codes, turned.
  __device__ __forceinline__ void fetch_kn(const SplitRange& range, const StepPlace& place,
                                           uint32_t (&words)[Shape::kWordsB]) const {
#pragma unroll
    for (int i = 0; i < Shape::kWordsB; i += 2) {
      const int line = line_b(i) - line_b(0);
      const int64_t left = g_.n - column_ - line_b(i);
      uint32_t rows[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int64_t k = index_of(range, place, g_.k, 4 * word_b(i) + r);
        rows[r] = k < 0 ? 0 : two_columns(b_ + line + k * g_.n, left);
      }
      const uint32_t low = __byte_perm(rows[0], rows[1], 0x5140);  // r0c0 r1c0 r0c1 r1c1
      const uint32_t high = __byte_perm(rows[2], rows[3], 0x5140);
      words[i] = __byte_perm(low, high, 0x5410);
      words[i + 1] = __byte_perm(low, high, 0x7632);
    }
  }
  __device__ uint32_t two_columns(const uint8_t* codes, int64_t left) const {
    if (left >= 2 && b_aligned_) return *reinterpret_cast<const uint16_t*>(codes);
    const uint32_t first = left >= 1 ? codes[0] : 0;
    return left >= 2 ? first | uint32_t{codes[1]} << 8 : first;
  }

  // Where a thread's i-th word belongs. Threads that are neighbours read neighbouring memory: along
  // K, or along N where B is [K, N].
  __device__ int line_a(int i) const { return thread_ / kWords + i * kLineStep; }
  __device__ int word_a() const { return thread_ % kWords; }
  __device__ int line_b(int i) const {
    if (g_.b_stride_k == 1) return thread_ / kWords + i * kLineStep;
    return (thread_ + i / 2 * Shape::kThreads) % kColumnPairs * 2 + i % 2;
  }
  __device__ int word_b(int i) const {
    if (g_.b_stride_k == 1) return thread_ % kWords;
    return (thread_ + i / 2 * Shape::kThreads) / kColumnPairs;
  }

  __device__ __forceinline__ void put(const uint32_t (&words_a)[Shape::kWordsA],
                                      const uint32_t (&words_b)[Shape::kWordsB]) {
    const bool a_e5m2 = g_.fmt_a.has_infinity;
    const bool b_e5m2 = g_.fmt_b.has_infinity;
#pragma unroll
    for (int i = 0; i < Shape::kWordsA; ++i) {
      const uint32_t codes = only_finite(words_a[i], a_e5m2, s_.flags_a[line_a(i)]);
      Step::store_a(s_.operands, line_a(i), word_a(), codes, a_e5m2);
    }
#pragma unroll
    for (int i = 0; i < Shape::kWordsB; ++i) {
      const uint32_t codes = only_finite(words_b[i], b_e5m2, s_.flags_b[line_b(i)]);
      Step::store_b(s_.operands, line_b(i), word_b(i), codes, b_e5m2);
    }
  }

  // Non-finite codes become +0 and leave a flag on their line (R14).
  __device__ static uint32_t only_finite(uint32_t codes, bool is_e5m2, uint32_t& flags) {
    const uint32_t found = non_finite(codes, is_e5m2);
    if (found == 0) return codes;
    atomicOr(&flags, special_flags(codes, is_e5m2));
    return codes & ~whole_bytes(found);
  }

  // By way of shared memory, so that neighbours write neighbouring outputs.
  __device__ void store(const Fragment& total) {
    const Lane lane = Lane::own();
    for_each_output([&](int mi, int ni, int e) {
      s_.out.acc[warp_row_ + lane.row(mi, e)][warp_column_ + lane.column(ni, e)] =
          __float_as_uint(total.at[mi][ni][e]);
    });
    __syncthreads();
    const Epilogue epilogue = g_.epilogue(batch_);
#pragma unroll 1
    for (int i = thread_; i < Shape::kRows * Shape::kColumns; i += Shape::kThreads) {
      const int in_row = i / Shape::kColumns;
      const int in_column = i % Shape::kColumns;
      const int64_t row = row_ + in_row;
      const int64_t column = column_ + in_column;
      if (row >= g_.m || column >= g_.n) continue;
      uint32_t acc = s_.out.acc[in_row][in_column];
      const uint32_t flags = s_.flags_a[in_row] | s_.flags_b[in_column];
      if (flags != 0) acc = patched(g_, batch_, row, column, flags, acc);
      store_code(g_, (batch_ * g_.m + row) * g_.n + column, output_code(epilogue, acc));
    }
  }

  __device__ __noinline__ static uint32_t patched(const Gemm& g, int64_t batch, int64_t row,
                                                  int64_t column, uint32_t flags, uint32_t acc) {
    if ((flags & kHasNan) != 0) return kFp32.canonical_nan;
    return products_of(g, batch, row, column).special(g.k).patch(acc);
  }

  const Gemm& g_;
  Memory& s_;
  const int thread_;
  const int warp_row_;
  const int warp_column_;
  int64_t batch_ = 0;
  int64_t row_ = 0;
  int64_t column_ = 0;
  const uint8_t* a_ = nullptr;  // the own line's first code
  const uint8_t* b_ = nullptr;
  bool a_aligned_ = false;
  bool b_aligned_ = false;
};

// What a kernel does: the tasks of its block of threads.
template <typename Tile>
__device__ __forceinline__ void run_tasks(const Gemm& g) {
  auto& memory = *reinterpret_cast<typename Tile::Memory*>(dynamic_shared());
  Tile tile(g, memory);
  const int64_t tasks = Tile::tasks(g);
  for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) tile.run(task);
}

}  // namespace mmaemu::cuda
