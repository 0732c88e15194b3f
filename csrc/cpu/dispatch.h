// Which kernel targets were built and which this processor can run.
#pragma once

#include <string_view>
#include <vector>

#include "cpu/tile.h"

namespace mmaemu::cpu {

struct TargetStatus {
  const KernelTarget* target;
  bool usable;
  const char* why_not;  // empty when usable
};

// One instruction-set extension that a target needs or could use.
struct CpuFeature {
  const char* name;
  bool present;
};

// The extensions that matter here, on this processor; empty where none is looked for.
const std::vector<CpuFeature>& cpu_features();

// The built targets and which of them a processor with these features runs.
std::vector<TargetStatus> targets_with(const std::vector<CpuFeature>& features);

// Every built target, fastest first; the portable one is always last and usable.
const std::vector<TargetStatus>& targets();

// The target called `name` ("auto": the fastest usable); null where it is unknown or not usable.
const KernelTarget* find_target(std::string_view name);

}  // namespace mmaemu::cpu
