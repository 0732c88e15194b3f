#include "cpu/dispatch.h"

#if defined(MMAEMU_X86_TARGETS)
#include <cpuid.h>
#endif

#include <algorithm>
#include <initializer_list>

#include "cpu/portable.h"
#include "cpu/targets.h"

namespace mmaemu::cpu {
namespace {

#if defined(MMAEMU_X86_TARGETS)
// Not every Clang's __builtin_cpu_supports knows this name.
bool has_f16c() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

// __builtin_cpu_supports takes literals alone.
std::vector<CpuFeature> detect_features() {
  std::vector<CpuFeature> list;
#if defined(MMAEMU_X86_TARGETS)
#define MMAEMU_FEATURE(name) list.push_back({name, __builtin_cpu_supports(name) != 0})
  MMAEMU_FEATURE("avx2");
  MMAEMU_FEATURE("fma");
  list.push_back({"f16c", has_f16c()});
  MMAEMU_FEATURE("avx512f");
  MMAEMU_FEATURE("avx512bw");
  MMAEMU_FEATURE("avx512dq");
  MMAEMU_FEATURE("avx512vl");
  MMAEMU_FEATURE("avx512vbmi");
  MMAEMU_FEATURE("avx512bitalg");
  MMAEMU_FEATURE("avx512vnni");
  MMAEMU_FEATURE("gfni");
#undef MMAEMU_FEATURE
#elif defined(MMAEMU_NEON_TARGET)
  list.push_back({"asimd", true});  // in every AArch64 processor that runs a hard-float ABI
#endif
  return list;
}

#if defined(MMAEMU_X86_TARGETS)
bool has_all(const std::vector<CpuFeature>& features,
             std::initializer_list<std::string_view> names) {
  return std::all_of(names.begin(), names.end(), [&](std::string_view name) {
    return std::any_of(features.begin(), features.end(), [name](const CpuFeature& feature) {
      return feature.present && feature.name == name;
    });
  });
}
#endif

}  // namespace

const std::vector<CpuFeature>& cpu_features() {
  static const std::vector<CpuFeature> kFeatures = detect_features();
  return kFeatures;
}

std::vector<TargetStatus> targets_with([[maybe_unused]] const std::vector<CpuFeature>& features) {
  std::vector<TargetStatus> list;
#if defined(MMAEMU_X86_TARGETS)
  const bool avx2 = has_all(features, {"avx2", "fma", "f16c"});
  const bool avx512 = avx2 && has_all(features, {"avx512f", "avx512bw", "avx512dq", "avx512vl"});
  const bool vbmi =
      avx512 && has_all(features, {"avx512vbmi", "avx512bitalg", "avx512vnni", "gfni"});
  list.push_back({&avx512_vbmi_target(), vbmi,
                  vbmi ? "" : "this processor lacks AVX-512 VBMI, BITALG, VNNI or GFNI"});
  list.push_back(
      {&avx512_target(), avx512, avx512 ? "" : "this processor lacks AVX-512 F, BW, DQ or VL"});
  list.push_back({&avx2_target(), avx2, avx2 ? "" : "this processor lacks AVX2, FMA or F16C"});
#elif defined(MMAEMU_NEON_TARGET)
  list.push_back({&neon_target(), true, ""});
#endif
  list.push_back({&portable_target(), true, ""});
  return list;
}

const std::vector<TargetStatus>& targets() {
  static const std::vector<TargetStatus> kTargets = targets_with(cpu_features());
  return kTargets;
}

const KernelTarget* find_target(std::string_view name) {
  for (const TargetStatus& status : targets()) {
    if (status.usable && (name == "auto" || name == status.target->name)) return status.target;
  }
  return nullptr;
}

}  // namespace mmaemu::cpu
