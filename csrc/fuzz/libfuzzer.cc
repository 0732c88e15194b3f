// One target for libFuzzer: -DMMAEMU_FUZZ_TARGET=fuzz_handler, fuzz_plan or fuzz_arithmetic.

#include <cstddef>
#include <cstdint>

#include "fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  mmaemu::fuzz::MMAEMU_FUZZ_TARGET(data, size);
  return 0;
}
