// The kernel for GPUs whose wgmma is the model (32 products, 13 fraction bits): one warpgroup
// copies stages of 128 codes of K, two multiply. Chains and their sums are the plan's (R10 to R13).
// The instruction truncates each block's result itself (R7) and returns the IEEE value of
// non-finite inputs (R14).

#include <cstdint>

#include "cpu/packed_codes.h"
#include "cuda/fragment.h"
#include "cuda/kernels.h"
#include "cuda/output_code.h"
#include "cuda/portable_kernel.h"
#include "cuda/sm90.h"

namespace mmaemu::cuda {

inline constexpr int kStageK = 128;    // one swizzled line
inline constexpr int kWgmmaK = 32;     // one block of the model
inline constexpr int kWgmmaRows = 64;  // of one warpgroup
inline constexpr int kConsumers = 2;   // warpgroups that multiply
inline constexpr int kWgmmaTileRows = kWgmmaRows * kConsumers;
inline constexpr int kWgmmaThreads = 128 * (kConsumers + 1);
inline constexpr int kConsumerWarps = 4 * kConsumers;
static_assert(32 * kConsumerWarps == kWgmmaThreads - 128);

template <int kColumns>
struct WgmmaMemory {
  static constexpr int kStages = kColumns == 256 ? 4 : 6;
  union {
    struct {
      alignas(1024) uint8_t a[kStages][kWgmmaTileRows * kStageK];
      alignas(1024) uint8_t b[kStages][kColumns * kStageK];
    } codes;
    uint32_t acc[kWgmmaTileRows][kColumns + 4];
  };
  uint64_t full[kStages];
  uint64_t empty[kStages];
};

// How a plan's values are added, and so which of them are held at the same time.
enum class Sums {
  kNone,    // one chain: room for 256 columns
  kChains,  // one after the other: slow without splits, or fast splits of one chain each
  kSplits,  // the chains of a split, then the splits
};

MMAEMU_HD constexpr Sums sums_of(const AccumulationPlan& plan) {
  if (plan.splits == 1) return plan.chunk_k == 0 ? Sums::kNone : Sums::kChains;
  return plan.chunk_k == 0 ? Sums::kChains : Sums::kSplits;
}

// Stages of a split, and of each of its chains but the last.
struct SplitStages {
  SplitRange range;
  int64_t count;
  int64_t per_chain;
};

__device__ inline SplitStages split_stages(const Gemm& g, int64_t split) {
  const SplitRange range = split_range(g.plan, g.k, split);
  const int64_t count = ceil_div(range.length, kStageK);
  return {range, count, g.plan.chunk_k == 0 ? count : g.plan.chunk_k / kStageK};
}

// A stage buffer in turn, and which phase of its barriers comes next.
template <int kStages>
struct Turn {
  int stage = 0;
  uint32_t phase = 0;
  __device__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    phase ^= 1;
  }
};

// Lines of 128 bytes in swizzled groups of eight, from `codes` on.
__device__ __forceinline__ uint64_t descriptor(const uint8_t* codes) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kGroupStride = uint64_t{8 * kStageK >> 4} << 32;
  constexpr uint64_t kUnusedStride = uint64_t{1} << 16;
  return kSwizzle128 | kGroupStride | kUnusedStride | (shared_address(codes) & 0x3FFFF) >> 4;
}

template <int kColumns, Sums kSums, bool kIsE5M2A, bool kIsE5M2B>
class WgmmaTile {
 public:
  using Memory = WgmmaMemory<kColumns>;

  __device__ WgmmaTile(const Gemm& g, Memory& memory, int64_t row, int64_t column)
      : g_(g), s_(memory), row_(row), column_(column) {}

  __device__ void copy(const OperandMap& a, const OperandMap& b) {
    Turn<Memory::kStages> turn;
    for (int64_t split = 0; split < g_.plan.splits; ++split) {
      const SplitStages stages = split_stages(g_, split);
      for (int64_t i = 0; i < stages.count; ++i) {
        const int64_t k = stages.range.k_of(i * kStageK);
        uint64_t* full = &s_.full[turn.stage];
        barrier_wait(&s_.empty[turn.stage], turn.phase ^ 1);
        barrier_expect(full, (kWgmmaTileRows + kColumns) * kStageK);
        copy_box(s_.codes.a[turn.stage], a, row_, k, full);
        copy_box(s_.codes.b[turn.stage], b, column_, k, full);
        turn.advance();
      }
    }
  }

  // Multiplies for rows kWgmmaRows * consumer on; the accumulators are left in shared memory.
  __device__ void multiply(int consumer) {
    Accumulators total;
    clear(total);
    Turn<Memory::kStages> turn;
    if constexpr (kSums == Sums::kNone) run_one_chain(consumer, total);
    if constexpr (kSums == Sums::kChains) {
      for (int64_t split = 0; split < g_.plan.splits; ++split)
        add_chains(consumer, split, turn, total);
    }
    if constexpr (kSums == Sums::kSplits) {
      for (int64_t split = 0; split < g_.plan.splits; ++split) {
        Accumulators partial;
        clear(partial);
        add_chains(consumer, split, turn, partial);
        add(partial, total);
      }
    }
    // Both warpgroups have read their last stage before the accumulators replace the codes.
    consumers_barrier();
    keep(consumer, total);
  }

  __device__ void consumers_barrier() const { named_barrier(1, 128 * kConsumers); }

 private:
  using Accumulators = float[kColumns / 2];

  __device__ __forceinline__ void issue(int consumer, int stage, bool keep_first,
                                        Accumulators& chain) const {
    const uint64_t a = descriptor(s_.codes.a[stage] + consumer * kWgmmaRows * kStageK);
    const uint64_t b = descriptor(s_.codes.b[stage]);
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < kStageK / kWgmmaK; ++k) {
      const uint64_t step = static_cast<uint64_t>(k * kWgmmaK >> 4);
      wgmma<kColumns, kIsE5M2A, kIsE5M2B>(chain, a + step, b + step, keep_first || k > 0);
    }
    wgmma_commit();
  }
  __device__ __forceinline__ void release(int stage) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(&s_.empty[stage]);
  }

  // One stage is always being multiplied while the next is waited for.
  __device__ __forceinline__ void run_one_chain(int consumer, Accumulators& chain) const {
    const int64_t count = ceil_div(g_.k, kStageK);
    Turn<Memory::kStages> turn;
    Turn<Memory::kStages> previous;
    barrier_wait(&s_.full[0], 0);
    issue(consumer, 0, false, chain);
    turn.advance();
#pragma unroll 1
    for (int64_t i = 1; i < count; ++i) {
      barrier_wait(&s_.full[turn.stage], turn.phase);
      issue(consumer, turn.stage, true, chain);
      wgmma_wait<1>();
      release(previous.stage);
      previous.advance();
      turn.advance();
    }
    wgmma_wait<0>();
  }

  // The chains of one split, added to sum in turn. An accumulator is never -0 (R7), so that the
  // first may be added to +0 instead of being assigned.
  __device__ __forceinline__ void add_chains(int consumer, int64_t split,
                                             Turn<Memory::kStages>& turn, Accumulators& sum) const {
    const SplitStages stages = split_stages(g_, split);
#pragma unroll 1
    for (int64_t first = 0; first < stages.count; first += stages.per_chain) {
      const int64_t last = first + stages.per_chain;
      Accumulators chain;
#pragma unroll 1
      for (int64_t i = first; i < last && i < stages.count; ++i) {
        barrier_wait(&s_.full[turn.stage], turn.phase);
        issue(consumer, turn.stage, i != first, chain);
        wgmma_wait<0>();
        release(turn.stage);
        turn.advance();
      }
      add(chain, sum);
    }
  }
  __device__ __forceinline__ static void clear(Accumulators& x) {
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) x[i] = 0.0f;
  }
  __device__ __forceinline__ static void add(const Accumulators& x, Accumulators& sum) {
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) sum[i] = __fadd_rn(sum[i], x[i]);
  }

  // Register 4 j + e of a thread is at row 16 warp + group + 8 (e / 2), column 8 j + 2 pair + e
  // % 2.
  __device__ void keep(int consumer, const Accumulators& total) {
    const Lane lane = Lane::own();
    const int row = consumer * kWgmmaRows + static_cast<int>(threadIdx.x) % 128 / 32 * 16;
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) {
      s_.acc[row + lane.group + 8 * (i % 4 / 2)][i / 4 * 8 + 2 * lane.pair + i % 2] =
          __float_as_uint(total[i]);
    }
  }

  const Gemm& g_;
  Memory& s_;
  int64_t row_;
  int64_t column_;
};

template <int kColumns>
__device__ void store_tile(const Gemm& g, const WgmmaMemory<kColumns>& memory, int64_t batch,
                           int64_t first_row, int64_t first_column, int thread) {
  const Epilogue epilogue = g.epilogue(batch);
#pragma unroll 1
  for (int i = thread; i < kWgmmaTileRows * kColumns; i += 128 * kConsumers) {
    const int64_t row = first_row + i / kColumns;
    const int64_t column = first_column + i % kColumns;
    if (row >= g.m || column >= g.n) continue;
    const uint32_t acc = memory.acc[i / kColumns][i % kColumns];
    store_code(g, (batch * g.m + row) * g.n + column, output_code(epilogue, acc));
  }
}

template <int kColumns, Sums kSums, bool kIsE5M2A, bool kIsE5M2B>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    mmaemu_wgmma_gemm(const __grid_constant__ Gemm g, const __grid_constant__ OperandMap a,
                      const __grid_constant__ OperandMap b, int64_t batch) {
  using Tile = WgmmaTile<kColumns, kSums, kIsE5M2A, kIsE5M2B>;
  auto& memory = *reinterpret_cast<typename Tile::Memory*>(dynamic_shared());
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    for (uint64_t& full : memory.full) barrier_init(&full, 1);
    for (uint64_t& empty : memory.empty) barrier_init(&empty, kConsumerWarps);
  }
  barriers_ready();
  const int64_t row_tiles = ceil_div(g.m, kWgmmaTileRows);
  const int64_t row = int64_t{blockIdx.x} % row_tiles * kWgmmaTileRows;
  const int64_t column = int64_t{blockIdx.x} / row_tiles * kColumns;
  Tile tile(g, memory, row, column);
  if (thread >= 128 * kConsumers) {
    give_registers_up<40>();
    if (thread == 128 * kConsumers) tile.copy(a, b);
    return;
  }
  take_registers<232>();
  tile.multiply(thread / 128);
  tile.consumers_barrier();
  store_tile(g, memory, batch, row, column, thread);
}

// Operands that the copy engine cannot read as they are: lines of `depth` codes, `line` and `step`
// bytes apart, become lines of a multiple of 16 bytes.
__global__ void mmaemu_wgmma_pack(const uint8_t* codes, int64_t lines, int64_t depth, int64_t line,
                                  int64_t step, int64_t packed_line, uint8_t* packed) {
  const int64_t stride = int64_t{gridDim.x} * kPortableThreads;
  for (int64_t at = int64_t{blockIdx.x} * kPortableThreads + threadIdx.x; at < lines * packed_line;
       at += stride) {
    // Neighbouring threads read neighbouring codes: along the line, or across lines.
    const int64_t i = step == 1 ? at / packed_line : at % lines;
    const int64_t k = step == 1 ? at % packed_line : at / lines;
    packed[i * packed_line + k] = k < depth ? codes[i * line + k * step] : 0;
  }
}

namespace {

struct Operand {
  const uint8_t* codes;
  int64_t lines;
  int64_t line;  // bytes from one line to the next
  int64_t step;  // bytes from one element of K to the next
};

bool readable_by_copy_engine(const Operand& x) {
  return x.step == 1 && x.line % 16 == 0 && reinterpret_cast<uintptr_t>(x.codes) % 16 == 0;
}

constexpr int64_t round_up(int64_t x, int64_t step) { return ceil_div(x, step) * step; }

cudaError_t pack(Operand& x, int64_t depth, uint8_t* to, cudaStream_t stream) {
  const int64_t packed_line = round_up(depth, 16);
  const int64_t blocks = std::min(ceil_div(x.lines * packed_line, kPortableThreads), kMaxBlocks);
  const cudaError_t error = launch(mmaemu_wgmma_pack, blocks, kPortableThreads, 0, stream, x.codes,
                                   x.lines, depth, x.line, x.step, packed_line, to);
  x = {to, x.lines, packed_line, 1};
  return error;
}

template <int kColumns, Sums kSums>
cudaError_t launch_tiles(const Gemm& g, const Operand& a, const Operand& b, int64_t batch,
                         cudaStream_t stream) {
  OperandMap map_a;
  OperandMap map_b;
  cudaError_t error = make_operand_map(map_a, a.codes, a.lines, g.k, a.line, kWgmmaTileRows);
  if (error != cudaSuccess) return error;
  error = make_operand_map(map_b, b.codes, b.lines, g.k, b.line, kColumns);
  if (error != cudaSuccess) return error;
  const int64_t blocks = ceil_div(g.m, kWgmmaTileRows) * ceil_div(g.n, kColumns);
  const auto run = [&](auto kernel) {
    // The memory of a block starts at a multiple of 1024 (dynamic_shared).
    return launch(kernel, blocks, kWgmmaThreads, sizeof(WgmmaMemory<kColumns>), stream, g, map_a,
                  map_b, batch);
  };
  if (g.fmt_a.has_infinity) {
    return g.fmt_b.has_infinity ? run(mmaemu_wgmma_gemm<kColumns, kSums, true, true>)
                                : run(mmaemu_wgmma_gemm<kColumns, kSums, true, false>);
  }
  return g.fmt_b.has_infinity ? run(mmaemu_wgmma_gemm<kColumns, kSums, false, true>)
                              : run(mmaemu_wgmma_gemm<kColumns, kSums, false, false>);
}

Operand operand_a(const Gemm& g, int64_t batch) {
  return {g.a + g.offset(g.a_strides, batch), g.m, g.k, 1};
}
Operand operand_b(const Gemm& g, int64_t batch) {
  return {g.b + g.offset(g.b_strides, batch), g.n, g.b_stride_n, g.b_stride_k};
}

// Operands that the copy engine cannot read are copied to the workspace, laid out as cuda.py says.
struct PackedOperands {
  int64_t bytes_a;
  uint8_t* start;
  bool has_room;
};

PackedOperands packed_operands(const Gemm& g, const Workspace& w) {
  const int64_t packed_line = round_up(g.k, 16);
  const int64_t bytes_a = round_up(g.m * packed_line, 128);
  const int64_t skipped = (128 - reinterpret_cast<uintptr_t>(w.data) % 128) % 128;
  const int64_t bytes = skipped + bytes_a + round_up(g.n * packed_line, 128);
  return {bytes_a, w.data + skipped, w.data != nullptr && bytes <= w.size};
}

bool readable_by_copy_engine(const Gemm& g) {
  for (int64_t batch = 0; batch < g.batches; ++batch) {
    if (!readable_by_copy_engine(operand_a(g, batch))) return false;
    if (!readable_by_copy_engine(operand_b(g, batch))) return false;
  }
  return true;
}

cudaError_t launch_batch(const Gemm& g, const Workspace& w, int64_t batch, cudaStream_t stream) {
  Operand a = operand_a(g, batch);
  Operand b = operand_b(g, batch);
  if (!readable_by_copy_engine(a) || !readable_by_copy_engine(b)) {
    const PackedOperands packed = packed_operands(g, w);
    cudaError_t error = pack(a, g.k, packed.start, stream);
    if (error != cudaSuccess) return error;
    error = pack(b, g.k, packed.start + packed.bytes_a, stream);
    if (error != cudaSuccess) return error;
  }
  switch (sums_of(g.plan)) {
    case Sums::kNone:
      return g.n > 128 ? launch_tiles<256, Sums::kNone>(g, a, b, batch, stream)
                       : launch_tiles<128, Sums::kNone>(g, a, b, batch, stream);
    case Sums::kChains:
      return launch_tiles<128, Sums::kChains>(g, a, b, batch, stream);
    default:
      return launch_tiles<128, Sums::kSplits>(g, a, b, batch, stream);
  }
}

}  // namespace

// A stage lies within one chain; coordinates and tiles are 32-bit numbers.
bool runs_wgmma(const Gemm& g) {
  const bool whole_stages =
      g.plan.chunk_k % kStageK == 0 && (g.plan.splits == 1 || g.plan.tile_k % kStageK == 0);
  const int64_t limit = int64_t{1} << 31;
  const int64_t tiles = ceil_div(g.m, kWgmmaTileRows) * ceil_div(g.n, 128);
  return g.c == nullptr && g.k > 0 && !g.plan.pairwise && whole_stages &&
         cpu::runs_in_fp32(g.model, 32) && g.k < limit && g.m < limit && g.n < limit &&
         tiles < limit;
}

// XLA may hand over a slice of a buffer as it lies, at any address, where the shape alone asks for
// no workspace (cuda.py).
cudaError_t launch_wgmma(const Gemm& g, const Workspace& workspace, cudaStream_t stream) {
  if (!readable_by_copy_engine(g) && !packed_operands(g, workspace).has_room) {
    return launch_ieee(g, workspace, stream);
  }
  for (int64_t batch = 0; batch < g.batches; ++batch) {
    const cudaError_t error = launch_batch(g, workspace, batch, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace mmaemu::cuda
