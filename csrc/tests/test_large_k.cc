// Sizes beyond 24 and 32 bits: deep chains, and operands, outputs and batches whose strides exceed
// 32 bits, on every target.

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "cpu/portable.h"
#include "cpu/specials.h"
#include "tests/bits.h"
#include "tests/check.h"
#include "tests/far_batches.h"
#include "tests/gemm_case.h"
#include "tests/operand_families.h"
#include "tests/sparse_memory.h"
#include "tests/targets.h"
#include "tests/workload.h"

namespace mmaemu::testing {
namespace {

constexpr int64_t kDeep = (int64_t{1} << (kFewerCases ? 20 : 24)) + 48;

// Ones alone, where the results are known: from 2^14 on, a 1 is below the grid 2^(E - 13) and the
// chain stands still (R5); chunks of 128 are exact, and so is their fp32 sum.
void check_ones() {
  cpu::SerialPool serial;
  GemmCase gemm;
  gemm.set_shape(1, 1, kDeep);
  gemm.a.assign(static_cast<size_t>(kDeep), 0x38);
  gemm.b.assign(static_cast<size_t>(kDeep), 0x38);
  for (const cpu::KernelTarget* target : usable_targets()) {
    gemm.plan.chunk_k = 0;
    const uint32_t fast = run_fp32(gemm, *target, serial)[0];
    MMAEMU_CHECK(fast == bits_of(16384.0f), target->name, fast);
    gemm.plan.chunk_k = 128;
    const uint32_t slow = run_fp32(gemm, *target, serial)[0];
    MMAEMU_CHECK(slow == bits_of(static_cast<float>(kDeep)), target->name, slow);
  }
}

void check_deep(const InstructionModel& model, const AccumulationPlan& plan,
                const FormatPair& formats, Family family, bool b_is_kn) {
  Random random(1);
  cpu::SerialPool serial;
  GemmCase gemm;
  gemm.model = model;
  gemm.plan = plan;
  gemm.formats = formats;
  gemm.b_is_kn = b_is_kn;
  gemm.set_shape(1, 2, kDeep);
  fill_operands(gemm, random, family);
  const std::vector<uint32_t> expected = run_fp32(gemm, cpu::portable_target(), serial);
  for (const cpu::KernelTarget* target : usable_targets()) {
    if (target == &cpu::portable_target()) continue;
    const std::vector<uint32_t> actual = run_fp32(gemm, *target, serial);
    for (size_t i = 0; i < expected.size(); ++i) {
      MMAEMU_CHECK(actual[i] == expected[i], target->name, gemm.text(), actual[i], expected[i]);
    }
  }
}

// A tile of `gemm` whose operands lie in sparse memory, `stride` apart.
struct FarTile {
  FarTile(const GemmCase& gemm, int64_t stride)
      : a(gemm.m * stride), b((gemm.b_is_kn ? gemm.k : gemm.n) * stride), acc(gemm.m * stride * 4) {
    if (a.data() == nullptr || b.data() == nullptr || acc.data() == nullptr) return;
    const cpu::GemmProblem p = gemm.problem(nullptr);
    tile = {p.model,
            p.plan,
            p.fmt_a,
            p.fmt_b,
            p.m,
            p.n,
            p.k,
            a.data(),
            stride,
            b.data(),
            gemm.b_is_kn ? 1 : stride,
            gemm.b_is_kn ? stride : 1,
            nullptr,
            0,
            reinterpret_cast<uint32_t*>(acc.data()),
            stride};
    const int64_t lines = gemm.b_is_kn ? gemm.k : gemm.n;
    const int64_t length = gemm.b_is_kn ? gemm.n : gemm.k;
    for (int64_t i = 0; i < gemm.m; ++i) {
      std::memcpy(a.data() + i * stride, p.a + i * gemm.k, static_cast<size_t>(gemm.k));
    }
    for (int64_t i = 0; i < lines; ++i) {
      std::memcpy(b.data() + i * stride, p.b + i * length, static_cast<size_t>(length));
    }
  }
  SparseMemory a, b, acc;
  cpu::TileProblem tile{};
};

void check_far_strides() {
  Random random(2);
  cpu::SerialPool serial;
  constexpr int64_t kStride = (int64_t{1} << 32) + 4096 + 8;
  for (const bool b_is_kn : {false, true}) {
    GemmCase gemm;
    gemm.formats = kFormatPairs[3];
    gemm.b_is_kn = b_is_kn;
    gemm.set_shape(3, 5, 40);
    fill_operands(gemm, random, Family::kRareSpecials);
    gemm.a[0] = kE5M2.infinity();
    const std::vector<uint32_t> expected = run_fp32(gemm, cpu::portable_target(), serial);
    for (const cpu::KernelTarget* target : usable_targets()) {
      const FarTile far(gemm, kStride);
      if (far.tile.a == nullptr) {
        std::printf("skipped: no address space for strides of 2^32\n");
        return;
      }
      const auto scratch = target->make_scratch();
      target->accumulate(far.tile, scratch.get());
      cpu::patch_specials(far.tile);
      for (int64_t i = 0; i < gemm.m * gemm.n; ++i) {
        const uint32_t actual = far.tile.acc[i / gemm.n * kStride + i % gemm.n];
        const uint32_t wanted = expected[static_cast<size_t>(i)];
        MMAEMU_CHECK(scale_accumulator(actual, 0x3F800000u) == wanted, target->name, i, actual,
                     wanted);
      }
    }
  }
}

void check_far_batches() {
  Random random(3);
  cpu::SerialPool serial;
  const GemmCase gemm = far_case(random, 3, 33);
  const FarBatches far(gemm);
  if (!far.usable()) return;
  const std::vector<uint32_t> expected = run_fp32(gemm, cpu::portable_target(), serial);
  for (const cpu::KernelTarget* target : usable_targets()) {
    std::vector<uint32_t> actual(expected.size());
    cpu::run_gemm(far.problem(actual.data()), *target, serial);
    MMAEMU_CHECK(actual == expected, target->name);
  }
}

// Where a target that computes nothing was asked to write.
struct Written {
  const uint8_t* out = nullptr;
  int64_t row_bytes = 0;
  int64_t rows = 0;
  int64_t misplaced = 0;
};
Written written;

constexpr cpu::KernelTarget kRecorder{
    "recorder",
    {1024, 4096, 1},
    [](const cpu::TileProblem&) { return true; },
    []() -> std::unique_ptr<cpu::TileScratch> { return nullptr; },
    [](const cpu::TileProblem&, cpu::TileScratch*) {},
    [](const Epilogue&, const uint32_t*, int64_t count, void* out) {
      const bool whole = count * 4 == written.row_bytes;
      const bool placed = out == written.out + written.rows * written.row_bytes;
      written.misplaced += !whole || !placed;
      ++written.rows;
    }};

// An output of more than 2^33 elements: every row is written where it belongs.
void check_far_outputs() {
  cpu::SerialPool serial;
  GemmCase gemm;
  gemm.set_shape((int64_t{1} << 22) + 3, (int64_t{1} << 11) + 1, 1);
  const SparseMemory out(gemm.m * gemm.n * 4);
  if (out.data() == nullptr) {
    std::printf("skipped: no address space for 2^33 outputs\n");
    return;
  }
  gemm.a.assign(static_cast<size_t>(gemm.m), 0);
  gemm.b.assign(static_cast<size_t>(gemm.n), 0);
  written = {out.data(), gemm.n * 4, 0, 0};
  cpu::run_gemm(gemm.problem(out.data()), kRecorder, serial);
  MMAEMU_CHECK(written.rows == gemm.m && written.misplaced == 0, written.rows, written.misplaced);
}

}  // namespace
}  // namespace mmaemu::testing

int main() {
  using namespace mmaemu::testing;
  check_ones();
  check_deep(kEarly32, {0, 1, 0, false, false}, kFormatPairs[0], Family::kFiniteCodes, false);
  check_deep(kEarly32, {128, 1, 0, false, false}, kFormatPairs[2], Family::kCancellation, true);
  check_deep(kEarly16, {128, 3, 64, true, true}, kFormatPairs[1], Family::kDominated, false);
  check_far_strides();
  check_far_batches();
  check_far_outputs();
  return finish();
}
