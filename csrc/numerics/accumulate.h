// Chains and accumulation plans (R9 to R13) over any source of codes.
#pragma once

#include <cstdint>

#include "numerics/block_fma.h"
#include "numerics/formats.h"
#include "numerics/instruction_model.h"
#include "numerics/portability.h"
#include "numerics/rounding.h"

namespace mmaemu {

// Which chains a GEMM runs and how they are added.
struct AccumulationPlan {
  int64_t chunk_k;   // a new chain every chunk_k own elements of a split (slow); 0: one chain
  int64_t splits;    // S
  int64_t tile_k;    // elements per k-tile (only with splits > 1)
  bool interleaved;  // split s owns tiles t with t mod S == s (R12), else contiguous tiles (R13)
  bool pairwise;     // combine the partials as R12 "pairwise", else serially
};

// Index arithmetic stays far inside 64 bits, and a nonsensical S does not run for hours.
inline constexpr int64_t kMaxSplits = int64_t{1} << 12;
inline constexpr int64_t kMaxTileK = int64_t{1} << 30;
inline constexpr int64_t kMaxChunkK = int64_t{1} << 40;

MMAEMU_HD constexpr bool is_valid(const AccumulationPlan& plan) {
  const bool split = plan.splits == 1 || (1 <= plan.tile_k && plan.tile_k <= kMaxTileK);
  return 0 <= plan.chunk_k && plan.chunk_k <= kMaxChunkK && 1 <= plan.splits &&
         plan.splits <= kMaxSplits && split;
}

MMAEMU_HD constexpr int64_t ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }

// The elements one split owns, numbered 0 .. length-1 in K order; the last tile may reach past K.
struct SplitRange {
  int64_t length;
  int64_t first_tile;
  int64_t tile_step;
  int64_t tile_k;

  // The k index of own element p; k >= K is zero padding.
  MMAEMU_HD constexpr int64_t k_of(int64_t p) const {
    return tile_k == 0 ? p : (first_tile + (p / tile_k) * tile_step) * tile_k + p % tile_k;
  }
};

MMAEMU_HD constexpr SplitRange split_range(const AccumulationPlan& plan, int64_t k, int64_t split) {
  if (plan.splits == 1) return {k, 0, 1, 0};
  const int64_t tiles = ceil_div(k, plan.tile_k);
  if (plan.interleaved) {
    const int64_t own = split < tiles ? ceil_div(tiles - split, plan.splits) : 0;
    return {own * plan.tile_k, split, plan.splits, plan.tile_k};
  }
  const int64_t per_split = ceil_div(tiles, plan.splits);
  const int64_t first = split * per_split;
  const int64_t rest = tiles > first ? tiles - first : 0;
  return {(rest < per_split ? rest : per_split) * plan.tile_k, first, 1, plan.tile_k};
}

// R9: blocks of nfma products over `length` own elements, (p) -> Term, from the accumulator c.
template <typename ProductAt>
MMAEMU_HD constexpr uint32_t run_chain(const InstructionModel& model, uint32_t c_bits,
                                       int64_t begin, int64_t end, const ProductAt& product_at) {
  for (int64_t p = begin; p < end; p += model.nfma) {
    c_bits = block_step(model, c_bits, [&](int i) {
      return p + i < end ? product_at(p + i) : Term{0, 0, 0, false};
    });
  }
  return c_bits;
}

// One split: one chain (fast), or chains of chunk_k own elements added serially from +0 (slow).
template <typename ProductAtK>
MMAEMU_HD constexpr uint32_t run_split(const InstructionModel& model, const AccumulationPlan& plan,
                                       uint32_t c_bits, int64_t k, int64_t split,
                                       const ProductAtK& product_at_k) {
  const SplitRange range = split_range(plan, k, split);
  const auto product_at = [&](int64_t p) {
    const int64_t index = range.k_of(p);
    return index < k ? product_at_k(index) : Term{0, 0, 0, false};
  };
  if (plan.chunk_k == 0) return run_chain(model, c_bits, 0, range.length, product_at);
  uint32_t sum = 0;
  for (int64_t p = 0; p < range.length; p += plan.chunk_k) {
    const int64_t end = p + plan.chunk_k < range.length ? p + plan.chunk_k : range.length;
    sum = add_fp32(sum, run_chain(model, 0, p, end, product_at));
  }
  return sum;
}

// R12, R13: the partials p_s = partial(s), combined. Each is asked for once, and no more than two
// values are held, so that kernels can follow the same order with bounded memory.
template <typename Partial>
MMAEMU_HD constexpr uint32_t combine_splits(const AccumulationPlan& plan, const Partial& partial) {
  const int64_t last = plan.splits - 1;
  if (!plan.pairwise) {
    uint32_t sum = partial(0);
    for (int64_t s = 1; s <= last; ++s) sum = add_fp32(sum, partial(s));
    return sum;
  }
  const int64_t half = ceil_div(plan.splits, 2);
  uint32_t sum = partial(last);
  for (int64_t i = 0; i < half && i < last; ++i) {
    uint32_t slot = partial(i);
    if (i + half < last) slot = add_fp32(slot, partial(i + half));
    sum = add_fp32(sum, slot);
  }
  return sum;
}

// The accumulator of one output element: R10 to R13 over the products (k) -> Term. A nonzero
// initial accumulator c is dot's and belongs to the plan of one chain.
template <typename ProductAtK>
MMAEMU_HD constexpr uint32_t accumulate(const InstructionModel& model, const AccumulationPlan& plan,
                                        uint32_t c_bits, int64_t k,
                                        const ProductAtK& product_at_k) {
  return combine_splits(
      plan, [&](int64_t split) { return run_split(model, plan, c_bits, k, split, product_at_k); });
}

}  // namespace mmaemu
