// A batched GEMM on the CPU: tiles over a task pool, one kernel target, specials, epilogue.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/parallel.h"
#include "cpu/tile.h"

namespace mmaemu::cpu {

// How far one operand moves (in elements) when each batch index moves by one; 0 broadcasts.
using BatchStrides = std::vector<int64_t>;

struct GemmProblem {
  InstructionModel model;
  AccumulationPlan plan;
  FloatFormat fmt_a;
  FloatFormat fmt_b;
  FloatFormat fmt_out;
  std::vector<int64_t> batch;  // leading dimensions, possibly none
  int64_t m;
  int64_t n;
  int64_t k;
  bool b_is_kn;  // b is [K, N] instead of [N, K]

  const uint8_t* a;
  const uint8_t* b;
  const uint32_t* scale_a;  // fp32 bits, one per batch element
  const uint32_t* scale_b;
  const uint32_t* scale_result;  // or null
  const uint32_t* c;             // [M, N] fp32 bits per batch element, or null
  void* out;

  BatchStrides a_strides;
  BatchStrides b_strides;
  BatchStrides scale_a_strides;
  BatchStrides scale_b_strides;
  BatchStrides scale_result_strides;
  BatchStrides c_strides;
};

// Runs `problem` on `target`; shapes, strides and attributes have been checked.
void run_gemm(const GemmProblem& problem, const KernelTarget& target, TaskPool& pool);

}  // namespace mmaemu::cpu
