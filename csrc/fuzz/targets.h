// The fuzz targets: each reads one input, checks what it describes, aborts on a finding.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mmaemu::fuzz {

// What an input described: something too large to compute, to refuse, or to compute.
enum class Outcome { kSkipped, kRefused, kComputed };

Outcome fuzz_handler(const uint8_t* data, size_t size);
Outcome fuzz_plan(const uint8_t* data, size_t size);
Outcome fuzz_arithmetic(const uint8_t* data, size_t size);

}  // namespace mmaemu::fuzz
