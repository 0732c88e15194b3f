// One output tile on fp32 lanes: packs segments of K, runs the chains of the plan (R10 to R13) and
// adds them in the order of combine_splits, with memory bounded by the tile, whatever K is.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "cpu/tile.h"

namespace mmaemu::cpu::MMAEMU_TARGET {

inline constexpr int64_t kTileRows = 256;
inline constexpr int64_t kTileColumns = 4 * 64;
inline constexpr int64_t kSegment = 128;               // own elements packed at a time
inline constexpr int64_t kL1Span = 4096 / kPanel;      // k whose packed panel (6 bytes) stays in L1
inline constexpr int64_t kStateStride = kTileColumns;  // fp32 accumulators, panel order
static_assert(kTileColumns % kPanel == 0 && kSegment % kPanel == 0);
static_assert(kSegment % kL1Span == 0 || kL1Span % kSegment == 0);

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

struct Scratch final : TileScratch {
  AlignedArray<float> a_values{kTileRows * kSegment};
  AlignedArray<uint32_t> a_exponent{kTileRows * kSegment};
  AlignedArray<uint32_t> a_low{kTileRows * kSegment};
  AlignedArray<uint8_t> codes{kSegment * kPanel};
  AlignedArray<float> b_values{kTileColumns * kSegment};
  AlignedArray<uint8_t> b_exponent{kTileColumns * kSegment};
  AlignedArray<uint8_t> b_low{kTileColumns * kSegment};
  // fp32 accumulators [row][kStateStride]: of the running chain, of a split, of a slot of the
  // pairwise order (R12), and of the whole GEMM.
  AlignedArray<float> chain{kTileRows * kStateStride};
  AlignedArray<float> split{kTileRows * kStateStride};
  AlignedArray<float> slot{kTileRows * kStateStride};
  AlignedArray<float> total{kTileRows * kStateStride};
};

template <int kNfma>
class TileKernel {
  static_assert(kSegment % kNfma == 0 && kL1Span % kNfma == 0);

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
    if (!plan.pairwise || last == 0) {
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
      const int64_t count = std::min(kSegment, end - p);
      const int64_t padded = ceil_div(count, kNfma) * kNfma;
      pack_a(range, p, count, padded);
      for (int64_t panel = 0; panel < panels_; ++panel) pack_b(range, p, count, padded, panel);
      const Lanes::TowardZeroScope toward_zero;
      for (int64_t panel = 0; panel < panels_; ++panel) {
        run_panel(panel, padded, p == begin, p + kSegment >= end, to);
      }
    }
  }

  // Calls run(offset, k, length) for every stretch of own elements [p, p + count) that is
  // contiguous in K; elements past K are not visited.
  template <typename Run>
  void for_each_stretch(const SplitRange& range, int64_t p, int64_t count, const Run& run) const {
    for (int64_t offset = 0; offset < count;) {
      const int64_t k = range.k_of(p + offset);
      int64_t length = count - offset;
      if (range.tile_k != 0) {
        length = std::min(length, range.tile_k - (p + offset) % range.tile_k);
      }
      if (k < t_.k) run(offset, k, std::min(length, t_.k - k));
      offset += length;
    }
  }

  void pack_a(const SplitRange& range, int64_t p, int64_t count, int64_t padded) {
    alignas(64) uint8_t codes[kSegment];
    const int64_t whole_panels = ceil_div(padded, kPanel) * kPanel;
    for (int64_t row = 0; row < t_.m; ++row) {
      std::memset(codes, 0, sizeof(codes));
      const uint8_t* source = t_.a + row * t_.a_stride_m;
      for_each_stretch(range, p, count, [&](int64_t offset, int64_t k, int64_t length) {
        std::memcpy(codes + offset, source + k, static_cast<size_t>(length));
      });
      const auto pack = t_.fmt_a.has_infinity ? pack_row<true> : pack_row<false>;
      pack(codes, whole_panels, s_.a_values.get() + row * kSegment,
           s_.a_exponent.get() + row * kSegment, s_.a_low.get() + row * kSegment);
    }
  }

  void pack_b(const SplitRange& range, int64_t p, int64_t count, int64_t padded, int64_t panel) {
    const int64_t column = panel * kPanel;
    const int64_t columns = std::min<int64_t>(kPanel, t_.n - column);
    uint8_t* codes = s_.codes.get();
    int64_t copied = 0;
    if (columns < kPanel) std::memset(codes, 0, static_cast<size_t>(padded * kPanel));
    const uint8_t* source = t_.b + column * t_.b_stride_n;
    for_each_stretch(range, p, count, [&](int64_t offset, int64_t k, int64_t length) {
      gather_panel(source + k * t_.b_stride_k, t_.b_stride_n, t_.b_stride_k, columns, length,
                   codes + offset * kPanel);
      copied = offset + length;
    });
    // Own elements past K come last: the zero padding of a ragged tile or block (R9).
    std::memset(codes + copied * kPanel, 0, static_cast<size_t>((padded - copied) * kPanel));
    const auto pack = t_.fmt_b.has_infinity ? pack_panel<true> : pack_panel<false>;
    const int64_t at = panel * kSegment * kPanel;
    pack(codes, padded, s_.b_values.get() + at, s_.b_exponent.get() + at, s_.b_low.get() + at);
  }

  // A stretch of a chain short enough for its packed panel to stay in the first-level cache.
  struct Stretch {
    int64_t begin;
    int64_t end;
    bool starts_chain;
    bool ends_chain;
  };

  void run_panel(int64_t panel, int64_t padded, bool starts, bool ends, Destination to) {
    const int64_t at = panel * kSegment * kPanel;
    const PackedB b{s_.b_values.get() + at, s_.b_exponent.get() + at, s_.b_low.get() + at};
    for (int64_t k = 0; k < padded; k += kL1Span) {
      const int64_t end = std::min(k + kL1Span, padded);
      const Stretch stretch{k, end, starts && k == 0, ends && end == padded};
      int64_t row = 0;
      row = run_rows<Lanes::kRowBlock>(b, row, panel, stretch, to);
      if constexpr (Lanes::kRowBlock > 2) row = run_rows<2>(b, row, panel, stretch, to);
      run_rows<1>(b, row, panel, stretch, to);
    }
  }

  template <int kRows>
  int64_t run_rows(const PackedB& b, int64_t row, int64_t panel, const Stretch& stretch,
                   Destination to) {
    alignas(64) float c[kRows * kPanel];
    for (; row + kRows <= t_.m; row += kRows) {
      const PackedA a{s_.a_values.get() + row * kSegment, s_.a_exponent.get() + row * kSegment,
                      s_.a_low.get() + row * kSegment, kSegment};
      const int64_t at = row * kStateStride + panel * kPanel;
      float* chain = s_.chain.get() + at;
      if (stretch.starts_chain) {
        std::memset(c, 0, sizeof(c));
      } else {
        for (int r = 0; r < kRows; ++r) {
          std::memcpy(c + r * kPanel, chain + r * kStateStride, sizeof(float) * kPanel);
        }
      }
      for (int64_t k = stretch.begin; k < stretch.end; k += kNfma) {
        Block<kNfma, kRows>::run(a, b, k, c);
      }
      if (stretch.ends_chain) {
        finish_chain<kRows>(c, to.state + at, to.add);
      } else {
        for (int r = 0; r < kRows; ++r) {
          std::memcpy(chain + r * kStateStride, c + r * kPanel, sizeof(float) * kPanel);
        }
      }
    }
    return row;
  }

  // R7 for a chain's last block: kFrac fraction bits, toward zero. The accumulator is normal
  // (kMinAccumulator), so this clears the mantissa's low bits; a zero is +0 already.
  template <int kRows>
  static void finish_chain(const float* c, float* to, bool add) {
    static_assert(kMinAccumulator >= kFp32.emin());
    constexpr uint32_t kKeep = ~((uint32_t{1} << (kFp32.mantissa_bits - kFrac)) - 1);
    const Lanes::NearestScope nearest;
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kPanel; i += Lanes::kFloats) {
        Lanes::Floats x =
            Lanes::floats(Lanes::and_(Lanes::load(c + r * kPanel + i), Lanes::broadcast(kKeep)));
        if (add) x = Lanes::add_nearest(Lanes::load_floats(to + r * kStateStride + i), x);
        Lanes::store_floats(to + r * kStateStride + i, x);
      }
    }
  }

  template <typename Each>
  void for_each_state(const Each& each) const {
    for (int64_t row = 0; row < t_.m; ++row) {
      const int64_t at = row * kStateStride;
      for (int64_t i = at; i < at + panels_ * kPanel; ++i) each(i);
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
      const float* state = s_.total.get() + row * kStateStride;
      uint32_t* acc = t_.acc + row * t_.acc_stride_m;
      for (int64_t column = 0; column < t_.n; ++column) {
        const int64_t in_panel = column % kPanel;
        const int64_t at = column - in_panel + in_panel % 4 * Lanes::kFloats + in_panel / 4;
        std::memcpy(acc + column, state + at, 4);
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
