// One output tile on fp32 lanes: packs segments of K, runs the chains of the plan (R10 to R13) and
// adds them in the order of combine_splits, with memory bounded by the tile, whatever K is.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "cpu/tile.h"

namespace mmaemu::cpu::MMAEMU_TARGET {

// Own elements packed at a time: a packed panel of them (6 bytes each) stays in the first-level
// cache, while the packed rows (12 bytes each) stream from the second.
inline constexpr int64_t kSegment = 4096 / kPanel;
inline constexpr int64_t kTileRows = 32768 / kSegment;
inline constexpr int64_t kTileColumns = 512;
inline constexpr int64_t kPrefetchRows = 16;  // rows of A fetched ahead of their packing
static_assert(kTileColumns % kPanel == 0 && kSegment % kPanel == 0);

template <typename T>
class AlignedArray {
 public:
  explicit AlignedArray(int64_t count)
      : data_(static_cast<T*>(::operator new(static_cast<size_t>(count) * sizeof(T), kAlign))) {}
  T* get() const { return data_.get(); }

 private:
  static constexpr std::align_val_t kAlign{64};
  struct Free {
    void operator()(T* p) const { ::operator delete(p, kAlign); }
  };
  std::unique_ptr<T, Free> data_;
};

// fp32 accumulators of a tile [panel][kTileRows][kPanel], in the panels' order of columns.
inline constexpr int64_t kStateSize = kTileRows * kTileColumns;
constexpr int64_t state_at(int64_t row, int64_t panel) {
  return (panel * kTileRows + row) * kPanel;
}

struct Scratch final : TileScratch {
  AlignedArray<float> a_values{kTileRows * kSegment};
  AlignedArray<uint32_t> a_exponent{kTileRows * kSegment};
  AlignedArray<uint32_t> a_low{kTileRows * kSegment};
  AlignedArray<uint8_t> codes{kSegment * kPanel};
  AlignedArray<float> b_values{kSegment * kPanel};
  AlignedArray<uint8_t> b_exponent{kSegment * kPanel};
  AlignedArray<uint8_t> b_low{kSegment * kPanel};
  // Of the running chain, of a split, of a slot of the pairwise order (R12), of the whole GEMM.
  AlignedArray<float> chain{kStateSize};
  AlignedArray<float> split{kStateSize};
  AlignedArray<float> slot{kStateSize};
  AlignedArray<float> total{kStateSize};
};

template <int kNfma>
class TileKernel {
  static_assert(kSegment % kNfma == 0);

 public:
  TileKernel(const TileProblem& tile, Scratch& scratch) : t_(tile), s_(scratch) {
    panels_ = ceil_div(t_.n, kPanel);
  }

  void run() {
    combine();
    store();
  }

 private:
  // The order of combine_splits (R12, R13), with whole tiles for values.
  void combine() {
    const AccumulationPlan& plan = t_.plan;
    const int64_t last = plan.splits - 1;
    if (!plan.pairwise) {
      run_split(0, s_.total.get());
      for (int64_t split = 1; split <= last; ++split) add_split(split, s_.total.get());
      return;
    }
    const int64_t half = ceil_div(plan.splits, 2);
    run_split(last, s_.total.get());
    for (int64_t i = 0; i < half && i < last; ++i) {
      run_split(i, s_.slot.get());
      if (i + half < last) add_split(i + half, s_.slot.get());
      add(s_.slot.get(), s_.total.get());
    }
  }

  void add_split(int64_t split, float* sum) {
    if (t_.plan.chunk_k == 0) {
      const SplitRange range = split_range(t_.plan, t_.k, split);
      run_chain(range, 0, range.length, {sum, true});
      return;
    }
    run_split(split, s_.split.get());
    add(s_.split.get(), sum);
  }

  // One split's partial: one chain (fast), or chains added serially (slow). The first of these is
  // assigned: +0 + x is x for every accumulator x, none of which is -0 (R7).
  void run_split(int64_t split, float* result) {
    const SplitRange range = split_range(t_.plan, t_.k, split);
    const int64_t chunk = t_.plan.chunk_k == 0 ? range.length : t_.plan.chunk_k;
    if (range.length == 0) clear(result);
    for (int64_t p = 0; p < range.length; p += chunk) {
      run_chain(range, p, std::min(p + chunk, range.length), {result, p > 0});
    }
  }

  // Where a chain's results go.
  struct Destination {
    float* state;
    bool add;  // RN32(state + result) (R11 to R13), else the result
  };

  void run_chain(const SplitRange& range, int64_t begin, int64_t end, Destination to) {
    for (int64_t p = begin; p < end; p += kSegment) {
      const Segment segment{p, std::min(kSegment, end - p), p == begin, p + kSegment >= end};
      for (int64_t panel = 0; panel < panels_; ++panel) {
        pack_b(range, segment, panel);
        const Lanes::TowardZeroScope toward_zero;
        run_panel(range, segment, panel, to);
      }
    }
  }

  // Own elements [begin, begin + count) of a split, part of one chain.
  struct Segment {
    int64_t begin;
    int64_t count;
    bool starts_chain;
    bool ends_chain;

    int64_t padded() const { return ceil_div(count, kNfma) * kNfma; }
  };

  // Calls run(offset, k, length) for every stretch of the segment that is contiguous in K; elements
  // past K are not visited.
  template <typename Run>
  void for_each_stretch(const SplitRange& range, const Segment& segment, const Run& run) const {
    for (int64_t offset = 0; offset < segment.count;) {
      const int64_t p = segment.begin + offset;
      const int64_t k = range.k_of(p);
      int64_t length = segment.count - offset;
      if (range.tile_k != 0) length = std::min(length, range.tile_k - p % range.tile_k);
      if (k < t_.k) run(offset, k, std::min(length, t_.k - k));
      offset += length;
    }
  }

  // Rows are packed when the first panel needs them: the stores then overlap with its chains. The
  // rounding mode is the chains' and does not matter, as every packed value is exact.
  void pack_a(const SplitRange& range, const Segment& segment, int64_t first_row, int rows) {
    alignas(64) uint8_t codes[kSegment] = {};  // past K, and of a short segment: zeros in every row
    const int64_t whole_panels = ceil_div(segment.padded(), kPanel) * kPanel;
    const auto pack = t_.fmt_a.has_infinity ? pack_row<true> : pack_row<false>;
    const int64_t last = range.k_of(segment.begin) + kSegment - 1;
    for (int64_t row = first_row; row < first_row + rows; ++row) {
      const uint8_t* source = t_.a + row * t_.a_stride_m;
      if (row + kPrefetchRows < t_.m) fetch(source + kPrefetchRows * t_.a_stride_m + last);
      for_each_stretch(range, segment, [&](int64_t offset, int64_t k, int64_t length) {
        if (length == kSegment) {
          std::memcpy(codes, source + k, kSegment);
        } else {
          std::memcpy(codes + offset, source + k, static_cast<size_t>(length));
        }
      });
      pack(codes, whole_panels, s_.a_values.get() + row * kSegment,
           s_.a_exponent.get() + row * kSegment, s_.a_low.get() + row * kSegment);
    }
  }

  void pack_b(const SplitRange& range, const Segment& segment, int64_t panel) {
    const int64_t padded = segment.padded();
    const int64_t column = panel * kPanel;
    const int64_t columns = std::min<int64_t>(kPanel, t_.n - column);
    fetch_next_b(range, segment, panel);
    uint8_t* codes = s_.codes.get();
    int64_t copied = 0;
    if (columns < kPanel) std::memset(codes, 0, static_cast<size_t>(padded * kPanel));
    const uint8_t* source = t_.b + column * t_.b_stride_n;
    for_each_stretch(range, segment, [&](int64_t offset, int64_t k, int64_t length) {
      gather_panel(source + k * t_.b_stride_k, t_.b_stride_n, t_.b_stride_k, columns, length,
                   codes + offset * kPanel);
      copied = offset + length;
    });
    // Own elements past K come last: the zero padding of a ragged tile or block (R9).
    std::memset(codes + copied * kPanel, 0, static_cast<size_t>((padded - copied) * kPanel));
    const auto pack = t_.fmt_b.has_infinity ? pack_panel<true> : pack_panel<false>;
    pack(codes, padded, s_.b_values.get(), s_.b_exponent.get(), s_.b_low.get());
  }

  // Codes that will be packed next are read far apart, so the processor does not see them coming.
  static void fetch(const uint8_t* codes) {
    constexpr int kRead = 0;
    constexpr int kSecondLevel = 2;
    __builtin_prefetch(codes, kRead, kSecondLevel);
  }
  void fetch_next_b(const SplitRange& range, const Segment& segment, int64_t panel) const {
    const bool same_segment = panel + 1 < panels_;
    const int64_t p = segment.begin + (same_segment ? 0 : kSegment);
    const int64_t column = same_segment ? (panel + 1) * kPanel : 0;
    const int64_t k = p < range.length ? range.k_of(p) : t_.k;
    const int64_t columns = std::min<int64_t>(kPanel, t_.n - column);
    const int64_t depth = std::min(kSegment, t_.k - k);
    if (depth <= 0) return;
    const uint8_t* codes = t_.b + column * t_.b_stride_n + k * t_.b_stride_k;
    if (t_.b_stride_k == 1) {
      for (int64_t n = 0; n < columns; ++n) fetch(codes + n * t_.b_stride_n + depth - 1);
    } else {
      for (int64_t i = 0; i < depth; ++i) fetch(codes + i * t_.b_stride_k + columns - 1);
    }
  }

  void run_panel(const SplitRange& range, const Segment& segment, int64_t panel, Destination to) {
    int64_t row = 0;
    for (; row + Lanes::kRowBlock <= t_.m; row += Lanes::kRowBlock) {
      run_rows<Lanes::kRowBlock>(range, segment, row, panel, to);
    }
    run_last_rows<Lanes::kRowBlock - 1>(range, segment, row, panel, to);
  }
  template <int kRows>
  void run_last_rows(const SplitRange& range, const Segment& segment, int64_t row, int64_t panel,
                     Destination to) {
    if constexpr (kRows > 0) {
      if (row + kRows == t_.m) {
        run_rows<kRows>(range, segment, row, panel, to);
      } else {
        run_last_rows<kRows - 1>(range, segment, row, panel, to);
      }
    }
  }

  template <int kRows>
  void run_rows(const SplitRange& range, const Segment& segment, int64_t row, int64_t panel,
                Destination to) {
    if (panel == 0) pack_a(range, segment, row, kRows);
    const PackedB b{s_.b_values.get(), s_.b_exponent.get(), s_.b_low.get()};
    const PackedA a{s_.a_values.get() + row * kSegment, s_.a_exponent.get() + row * kSegment,
                    s_.a_low.get() + row * kSegment, kSegment};
    float* c = (to.add ? s_.chain.get() : to.state) + state_at(row, panel);
    if (!segment.starts_chain) prefetch(c + kRows * kPanel);
    if (segment.starts_chain) std::memset(c, 0, sizeof(float) * kRows * kPanel);
    for (int64_t k = 0; k < segment.count; k += kNfma) Block<kNfma, kRows>::run(a, b, k, c);
    if (segment.ends_chain) finish_chain(c, to.state + state_at(row, panel), kRows, to.add);
  }

  // The next rows' chain state, which may have left the second-level cache.
  static void prefetch(const float* state) {
    for (int i = 0; i < Lanes::kRowBlock * kPanel; i += 16) __builtin_prefetch(state + i, 1);
  }

  // R7 for a chain's last block: kFrac fraction bits, toward zero. The accumulator is normal
  // (kMinAccumulator), so this clears the mantissa's low bits; a zero is +0 already.
  static void finish_chain(const float* c, float* to, int rows, bool add) {
    static_assert(kMinAccumulator >= kFp32.emin());
    constexpr uint32_t kKeep = ~((uint32_t{1} << (kFp32.mantissa_bits - kFrac)) - 1);
    const Lanes::NearestScope nearest;
    for (int i = 0; i < rows * kPanel; i += Lanes::kFloats) {
      Lanes::Floats x = Lanes::floats(Lanes::and_(Lanes::load(c + i), Lanes::broadcast(kKeep)));
      if (add) x = Lanes::add_nearest(Lanes::load_floats(to + i), x);
      Lanes::store_floats(to + i, x);
    }
  }

  template <typename Each>
  void for_each_state(const Each& each) const {
    for (int64_t panel = 0; panel < panels_; ++panel) {
      const int64_t at = state_at(0, panel);
      for (int64_t i = at; i < at + t_.m * kPanel; ++i) each(i);
    }
  }

  // RN32 in the task's IEEE environment (R11 to R13).
  void add(const float* x, float* sum) const {
    for_each_state([&](int64_t i) { sum[i] += x[i]; });
  }
  void clear(float* x) const {
    for_each_state([&](int64_t i) { x[i] = 0.0f; });
  }

  // From panel order (float vector q, lane j) to column 4 j + q.
  void store() const {
    for (int64_t row = 0; row < t_.m; ++row) {
      uint32_t* acc = t_.acc + row * t_.acc_stride_m;
      for (int64_t panel = 0; panel < panels_; ++panel) {
        alignas(64) float columns[kPanel];
        const float* state = s_.total.get() + state_at(row, panel);
        for (int j = 0; j < Lanes::kFloats; ++j) {
          for (int q = 0; q < 4; ++q) columns[4 * j + q] = state[q * Lanes::kFloats + j];
        }
        std::memcpy(acc + panel * kPanel, columns, sizeof(columns));
      }
    }
  }

  const TileProblem& t_;
  Scratch& s_;
  int64_t panels_;
};

inline bool runs_tile(const TileProblem& tile) {
  return tile.c == nullptr && (runs_in_fp32(tile.model, 16) || runs_in_fp32(tile.model, 32));
}

inline std::unique_ptr<TileScratch> make_scratch() { return std::make_unique<Scratch>(); }

inline void accumulate_tile(const TileProblem& tile, TileScratch* scratch) {
  auto& own = *static_cast<Scratch*>(scratch);
  if (tile.model.nfma == 16) {
    TileKernel<16>(tile, own).run();
  } else {
    TileKernel<32>(tile, own).run();
  }
}

}  // namespace mmaemu::cpu::MMAEMU_TARGET
