#include "cuda/gemm.h"

namespace mmaemu::cuda {

std::optional<Gemm> make_gemm(const cpu::GemmProblem& p) {
  Gemm g{};
  g.model = p.model;
  g.plan = p.plan;
  g.fmt_a = p.fmt_a;
  g.fmt_b = p.fmt_b;
  g.fmt_out = p.fmt_out;
  g.batches = 1;
  g.m = p.m;
  g.n = p.n;
  g.k = p.k;
  g.b_stride_n = p.b_is_kn ? 1 : p.k;
  g.b_stride_k = p.b_is_kn ? p.n : 1;
  g.a = p.a;
  g.b = p.b;
  g.scale_a = p.scale_a;
  g.scale_b = p.scale_b;
  g.scale_result = p.scale_result;
  g.c = p.c;
  g.out = p.out;
  for (size_t d = 0; d < p.batch.size(); ++d) {
    g.batches *= p.batch[d];
    if (p.batch[d] == 1) continue;
    if (g.batch_rank == kMaxBatchDims) return std::nullopt;
    const int at = g.batch_rank++;
    g.batch[at] = p.batch[d];
    g.a_strides.of[at] = p.a_strides[d];
    g.b_strides.of[at] = p.b_strides[d];
    g.scale_a_strides.of[at] = p.scale_a_strides[d];
    g.scale_b_strides.of[at] = p.scale_b_strides[d];
    if (p.scale_result != nullptr) g.scale_result_strides.of[at] = p.scale_result_strides[d];
    if (p.c != nullptr) g.c_strides.of[at] = p.c_strides[d];
  }
  return g;
}

}  // namespace mmaemu::cuda
