// What one kernel target computes: the finite fp32 accumulators of one output tile, and the
// epilogue of a row. Everything around it (tiling, threads, specials, batches) is shared.
#pragma once

#include <cstdint>
#include <memory>

#include "numerics/accumulate.h"
#include "numerics/epilogue.h"
#include "numerics/formats.h"
#include "numerics/instruction_model.h"

namespace mmaemu::cpu {

struct TileProblem {
  InstructionModel model;
  AccumulationPlan plan;
  FloatFormat fmt_a;
  FloatFormat fmt_b;
  int64_t m;  // rows of this tile
  int64_t n;  // columns of this tile
  int64_t k;
  const uint8_t* a;  // codes of the tile's rows, contiguous along k
  int64_t a_stride_m;
  const uint8_t* b;  // codes of the tile's columns; one of the two strides is 1
  int64_t b_stride_n;
  int64_t b_stride_k;
  const uint32_t* c;  // initial accumulators (dot), or null for +0
  int64_t c_stride_m;
  // Out: fp32 bits, non-finite inputs taken as +0 (R14). Each row has room for whole column_steps
  // of the target, which may write all of it.
  uint32_t* acc;
  int64_t acc_stride_m;
};

// Largest tile a target wants and the granularity of its columns.
struct TileShape {
  int64_t rows;
  int64_t columns;
  int64_t column_step;
};

// Per-worker memory, made once per worker and GEMM; bounded by the tile shape, not by K.
class TileScratch {
 public:
  virtual ~TileScratch() = default;
};

struct KernelTarget {
  const char* name;
  TileShape tile;
  bool (*runs)(const TileProblem& problem);  // model, plan and c are within the kernel's bounds
  std::unique_ptr<TileScratch> (*make_scratch)();
  void (*accumulate)(const TileProblem& problem, TileScratch* scratch);
  // `count` accumulators to output codes of epilogue.out_format (1, 2 or 4 bytes each).
  void (*finish)(const Epilogue& epilogue, const uint32_t* acc, int64_t count, void* out);
};

}  // namespace mmaemu::cpu
