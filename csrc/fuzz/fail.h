// How a target reports a finding: it says what, and aborts, which libFuzzer and ctest both see.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "tests/check.h"

#define MMAEMU_FUZZ_CHECK(condition, ...)                                         \
  do {                                                                            \
    if (!(condition)) {                                                           \
      ::mmaemu::testing::report_failure(__FILE__, __LINE__, #condition,           \
                                        #__VA_ARGS__ __VA_OPT__(, ) __VA_ARGS__); \
      std::fflush(stdout);                                                        \
      std::abort();                                                               \
    }                                                                             \
  } while (false)
