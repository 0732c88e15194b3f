#include "cpu/dispatch.h"

#include "cpu/portable.h"
#include "cpu/targets.h"

namespace mmaemu::cpu {
namespace {

std::vector<TargetStatus> detect_targets() {
  std::vector<TargetStatus> list;
#if defined(MMAEMU_X86_TARGETS)
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  list.push_back(
      {&avx512_target(), avx512, avx512 ? "" : "this processor lacks AVX-512 F, BW, DQ or VL"});
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  list.push_back({&avx2_target(), avx2, avx2 ? "" : "this processor lacks AVX2, FMA or F16C"});
#endif
  list.push_back({&portable_target(), true, ""});
  return list;
}

}  // namespace

const std::vector<TargetStatus>& targets() {
  static const std::vector<TargetStatus> kTargets = detect_targets();
  return kTargets;
}

const KernelTarget* find_target(std::string_view name) {
  for (const TargetStatus& status : targets()) {
    if (status.usable && (name == "auto" || name == status.target->name)) return status.target;
  }
  return nullptr;
}

}  // namespace mmaemu::cpu
