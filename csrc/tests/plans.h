// Accumulation plans whose chunks, splits and tiles meet every way of cutting K.
#pragma once

#include <array>

#include "numerics/accumulate.h"

namespace mmaemu::testing {

inline constexpr std::array<AccumulationPlan, 14> kPlans{{
    {0, 1, 0, false, false},      // fast
    {128, 1, 0, false, false},    // slow
    {100, 1, 0, false, false},    // slow, chunks that no block divides
    {0, 2, 64, true, false},      // R12
    {0, 3, 64, true, true},       //
    {128, 2, 64, true, true},     //
    {128, 5, 64, true, false},    // empty splits below K = 257
    {0, 9, 64, true, true},       // empty splits everywhere
    {0, 2, 128, false, false},    // R13
    {128, 3, 128, false, false},  //
    {0, 8, 128, false, false},    // empty splits everywhere
    {0, 4, 40, true, true},       // tiles that no block divides
    {50, 3, 24, true, true},      //
    {16, 7, 16, false, false},    //
}};

}  // namespace mmaemu::testing
