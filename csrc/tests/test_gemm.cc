// What run_gemm does around its kernels, on every target: batches (R25), initial accumulators,
// empty sums (R15).

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cpu/dispatch.h"
#include "cpu/ieee_env.h"
#include "cpu/portable.h"
#include "tests/check.h"
#include "tests/gemm_case.h"
#include "tests/models.h"
#include "tests/operand_families.h"
#include "tests/random.h"
#include "tests/thread_pool.h"

namespace mmaemu::testing {
namespace {

// Every output of a batch of several tiles starts from its own accumulator: beside products that
// are zero, it is the result.
void check_places_of_accumulators() {
  Random random(4);
  cpu::SerialPool serial;
  GemmCase gemm;
  gemm.model = kLate32;
  gemm.batch = {2};
  gemm.batch_a = gemm.batch_b = {1};
  gemm.set_shape(70, 67, 1);
  gemm.a.assign(70, 0);
  gemm.b.assign(67, 0);
  for (int64_t i = 0; i < 2 * 70 * 67; ++i) gemm.c.push_back(0x3F800000u + random.bits() % 0x1000);
  for (const cpu::TargetStatus& status : cpu::targets()) {
    if (!status.usable) continue;
    check_equal(status.target->name, gemm, gemm.c, run_fp32(gemm, *status.target, serial));
  }
}

template <typename T>
std::vector<T> part_of(const std::vector<T>& all, int64_t index, int64_t count) {
  if (all.empty()) return {};
  return {all.begin() + index * count, all.begin() + (index + 1) * count};
}

// R25: each element of a batch is the GEMM of its own operands, scales and accumulators.
void check_batch(const GemmCase& all, const cpu::KernelTarget& target) {
  cpu::SerialPool serial;
  std::vector<uint8_t> expected;
  for (int64_t i = 0; i < 6; ++i) {
    GemmCase one = all;
    one.batch = one.batch_a = one.batch_b = {};
    one.a = part_of(all.a, i / 3, all.m * all.k);
    one.b = part_of(all.b, i % 3, all.n * all.k);
    one.scale_a = part_of(all.scale_a, i / 3, 1);
    one.scale_b = part_of(all.scale_b, i % 3, 1);
    one.scale_result = part_of(all.scale_result, i, 1);
    one.c = part_of(all.c, i, all.m * all.n);
    const std::vector<uint8_t> bytes = run_on(one, target, serial);
    expected.insert(expected.end(), bytes.begin(), bytes.end());
  }
  check_equal(target.name, all, expected, run_on(all, target, serial));
}

void check_batches() {
  Random random(5);
  for (const FloatFormat& out : kOutputs) {
    GemmCase all;
    all.out = out;
    all.batch = {2, 3};
    all.batch_a = {2, 1};
    all.batch_b = {1, 3};
    all.set_shape(3, 5, 40);
    fill_operands(all, random, Family::kFiniteCodes);
    const auto some = [&](int64_t count) {
      std::vector<uint32_t> numbers;
      while (count-- > 0) numbers.push_back(0x3C000000u | (random.bits() & 0x83FFFFFFu));
      return numbers;
    };
    all.scale_a = some(2);
    all.scale_b = some(3);
    if (out.bits() == 8) all.scale_result = some(6);
    if (out.bits() == 32) all.c = some(6 * all.m * all.n);
    for (const cpu::TargetStatus& status : cpu::targets()) {
      if (status.usable) check_batch(all, *status.target);
    }
  }
}

// One output of so many products that threads are asked for, which then have nothing to share.
void check_one_deep_output() {
  cpu::SerialPool serial;
  ThreadPool threads(3);
  Random random(6);
  GemmCase gemm;
  gemm.set_shape(1, 1, int64_t{1} << 18);
  fill_operands(gemm, random, Family::kFiniteCodes);
  const std::vector<uint32_t> expected = run_fp32(gemm, cpu::portable_target(), serial);
  for (const cpu::TargetStatus& status : cpu::targets()) {
    if (status.usable) {
      check_equal(status.target->name, gemm, expected, run_fp32(gemm, *status.target, threads));
    }
  }
}

// What a kernel was given.
struct Tiles {
  int64_t rows = 0;     // of the tallest
  int64_t columns = 0;  // of the widest
  int64_t outputs = 0;
};
Tiles tiles;

void record_tile(const cpu::TileProblem& tile, cpu::TileScratch*) {
  tiles.rows = std::max(tiles.rows, tile.m);
  tiles.columns = std::max(tiles.columns, tile.n);
  tiles.outputs += tile.m * tile.n;
  for (int64_t i = 0; i < tile.m; ++i) std::fill_n(tile.acc + i * tile.acc_stride_m, tile.n, 0u);
}

// No tile exceeds what its kernel has memory for, and together they are the output.
void check_tile_shapes() {
  cpu::SerialPool serial;
  cpu::KernelTarget target = cpu::portable_target();
  target.tile = {40, 48, 16};
  target.accumulate = record_tile;
  for (const int64_t size : {1, 16, 17, 40, 41, 48, 49, 100}) {
    GemmCase gemm;
    gemm.set_shape(size, size, 1);
    gemm.a.assign(static_cast<size_t>(size), 0);
    gemm.b.assign(static_cast<size_t>(size), 0);
    tiles = {};
    run_on(gemm, target, serial);
    MMAEMU_CHECK(tiles.rows <= 40 && tiles.columns <= 48, size, tiles.rows, tiles.columns);
    MMAEMU_CHECK(tiles.outputs == size * size, size, tiles.outputs);
  }
}

// R15: without products, +0 in every format, and no epilogue to make a NaN of it.
void check_empty() {
  cpu::SerialPool serial;
  for (const FloatFormat& out : kOutputs) {
    GemmCase gemm;
    gemm.out = out;
    gemm.set_shape(3, 5, 0);
    gemm.scale_a = {kFp32.canonical_nan};
    const std::vector<uint8_t> zeros(static_cast<size_t>(15 * (out.bits() / 8)), 0);
    for (const cpu::TargetStatus& status : cpu::targets()) {
      if (!status.usable) continue;
      check_equal(status.target->name, gemm, zeros, run_on(gemm, *status.target, serial));
    }
  }
}

}  // namespace
}  // namespace mmaemu::testing

int main() {
  using namespace mmaemu::testing;
  const mmaemu::cpu::ScopedIeeeEnv ieee;
  check_places_of_accumulators();
  check_batches();
  check_one_deep_output();
  check_tile_shapes();
  check_empty();
  return finish();
}
