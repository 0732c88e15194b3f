// The kernels that this processor runs.
#pragma once

#include <vector>

#include "cpu/dispatch.h"

namespace mmaemu::testing {

inline std::vector<const cpu::KernelTarget*> usable_targets() {
  std::vector<const cpu::KernelTarget*> list;
  for (const cpu::TargetStatus& status : cpu::targets()) {
    if (status.usable) list.push_back(status.target);
  }
  return list;
}

}  // namespace mmaemu::testing
