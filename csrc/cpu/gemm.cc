#include "cpu/gemm.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "cpu/portable.h"
#include "cpu/specials.h"
#include "numerics/rounding.h"

namespace mmaemu::cpu {
namespace {

// The output cut into tiles: batch-major, then rows, then columns.
struct TileGrid {
  int64_t rows;
  int64_t columns;
  int64_t row_tiles;
  int64_t column_tiles;
  int64_t batches;

  int64_t tasks() const { return batches * row_tiles * column_tiles; }
};

int64_t round_up(int64_t x, int64_t step) { return ceil_div(x, step) * step; }

// Halves the target's tile until every worker has a few tiles, down to 32 rows and one column step.
TileGrid make_grid(const GemmProblem& p, const TileShape& shape, int64_t threads) {
  const int64_t batches =
      std::accumulate(p.batch.begin(), p.batch.end(), int64_t{1}, std::multiplies<>());
  TileGrid grid{std::min(shape.rows, p.m),
                std::min(shape.columns, round_up(p.n, shape.column_step)), 0, 0, batches};
  constexpr int64_t kMinRows = 32;
  constexpr int64_t kTilesPerWorker = 4;
  for (;;) {
    grid.row_tiles = ceil_div(p.m, grid.rows);
    grid.column_tiles = ceil_div(p.n, grid.columns);
    if (threads <= 1 || grid.tasks() / kTilesPerWorker >= threads) return grid;
    // Columns first: B is packed once per row tile, so narrow tiles cost less than short ones.
    if (grid.columns > shape.column_step) {
      grid.columns = round_up(grid.columns / 2, shape.column_step);
    } else if (grid.rows > kMinRows) {
      grid.rows = std::max(kMinRows, ceil_div(grid.rows, 2));
    } else {
      return grid;
    }
  }
}

int64_t batch_offset(const std::vector<int64_t>& batch, const BatchStrides& strides,
                     int64_t index) {
  int64_t offset = 0;
  for (size_t d = batch.size(); d-- > 0;) {
    offset += (index % batch[d]) * strides[d];
    index /= batch[d];
  }
  return offset;
}

Epilogue make_epilogue(const GemmProblem& p, int64_t batch_index) {
  const uint32_t scale_a = p.scale_a[batch_offset(p.batch, p.scale_a_strides, batch_index)];
  const uint32_t scale_b = p.scale_b[batch_offset(p.batch, p.scale_b_strides, batch_index)];
  Epilogue epilogue{p.fmt_out, multiply_fp32(scale_a, scale_b), 0, p.scale_result != nullptr};
  if (p.scale_result != nullptr) {
    epilogue.scale_result_bits =
        p.scale_result[batch_offset(p.batch, p.scale_result_strides, batch_index)];
  }
  return epilogue;
}

struct WorkerMemory {
  std::unique_ptr<TileScratch> scratch;
  std::vector<uint32_t> acc;
};

class GemmRun {
 public:
  GemmRun(const GemmProblem& problem, const KernelTarget& target, const TileGrid& grid)
      : p_(problem), target_(target), grid_(grid) {}

  void run_task(int64_t task, WorkerMemory& memory) const {
    const int64_t column_tile = task % grid_.column_tiles;
    const int64_t row_tile = task / grid_.column_tiles % grid_.row_tiles;
    const int64_t batch_index = task / grid_.column_tiles / grid_.row_tiles;
    const int64_t row = row_tile * grid_.rows;
    const int64_t column = column_tile * grid_.columns;

    memory.acc.resize(static_cast<size_t>(grid_.rows * grid_.columns));
    const TileProblem tile = make_tile(batch_index, row, column, memory.acc.data());
    const KernelTarget& kernel = target_.runs(tile) ? target_ : portable_target();
    if (!memory.scratch) memory.scratch = kernel.make_scratch();
    kernel.accumulate(tile, memory.scratch.get());
    patch_specials(tile);
    finish(tile, batch_index, row, column);
  }

 private:
  TileProblem make_tile(int64_t batch_index, int64_t row, int64_t column, uint32_t* acc) const {
    TileProblem t{};
    t.model = p_.model;
    t.plan = p_.plan;
    t.fmt_a = p_.fmt_a;
    t.fmt_b = p_.fmt_b;
    t.m = std::min(grid_.rows, p_.m - row);
    t.n = std::min(grid_.columns, p_.n - column);
    t.k = p_.k;
    t.a_stride_m = p_.k;
    t.a = p_.a + batch_offset(p_.batch, p_.a_strides, batch_index) + row * t.a_stride_m;
    t.b_stride_n = p_.b_is_kn ? 1 : p_.k;
    t.b_stride_k = p_.b_is_kn ? p_.n : 1;
    t.b = p_.b + batch_offset(p_.batch, p_.b_strides, batch_index) + column * t.b_stride_n;
    if (p_.c != nullptr) {
      t.c_stride_m = p_.n;
      t.c = p_.c + batch_offset(p_.batch, p_.c_strides, batch_index) + row * p_.n + column;
    }
    t.acc = acc;
    t.acc_stride_m = grid_.columns;
    return t;
  }

  void finish(const TileProblem& tile, int64_t batch_index, int64_t row, int64_t column) const {
    const Epilogue epilogue = make_epilogue(p_, batch_index);
    const int64_t size = p_.fmt_out.bits() / 8;
    auto* out = static_cast<unsigned char*>(p_.out) + batch_index * p_.m * p_.n * size;
    for (int64_t i = 0; i < tile.m; ++i) {
      target_.finish(epilogue, tile.acc + i * tile.acc_stride_m, tile.n,
                     out + ((row + i) * p_.n + column) * size);
    }
  }

  const GemmProblem& p_;
  const KernelTarget& target_;
  const TileGrid grid_;
};

// Below this many products the pool's hand-over costs more than it saves.
constexpr int64_t kMinProductsForThreads = 1 << 18;

}  // namespace

void run_gemm(const GemmProblem& problem, const KernelTarget& target, TaskPool& pool) {
  const int64_t batches =
      std::accumulate(problem.batch.begin(), problem.batch.end(), int64_t{1}, std::multiplies<>());
  if (batches == 0 || problem.m == 0 || problem.n == 0) return;
  if (problem.k == 0 && problem.c == nullptr) {  // R15: +0 in every output format, no epilogue
    const int64_t bytes = batches * problem.m * problem.n * (problem.fmt_out.bits() / 8);
    std::memset(problem.out, 0, static_cast<size_t>(bytes));
    return;
  }
  const bool small = static_cast<double>(batches) * static_cast<double>(problem.m) *
                         static_cast<double>(problem.n) * static_cast<double>(problem.k) <
                     static_cast<double>(kMinProductsForThreads);
  SerialPool serial;
  TaskPool& used = small ? static_cast<TaskPool&>(serial) : pool;
  const TileGrid grid = make_grid(problem, target.tile, used.num_threads() + 1);
  const GemmRun run(problem, target, grid);
  std::vector<WorkerMemory> memory(static_cast<size_t>(worker_count(used, grid.tasks())));
  parallel_for(used, grid.tasks(), [&](int64_t task, int64_t worker) {
    run.run_task(task, memory[static_cast<size_t>(worker)]);
  });
}

}  // namespace mmaemu::cpu
