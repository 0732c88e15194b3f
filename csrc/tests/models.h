// The format pairs and instruction models the tests run, by their numbers (the table below R9).
#pragma once

#include <array>

#include "numerics/formats.h"
#include "numerics/instruction_model.h"

namespace mmaemu::testing {

struct FormatPair {
  FloatFormat a;
  FloatFormat b;
};
inline constexpr std::array<FormatPair, 4> kFormatPairs{
    {{kE4M3, kE4M3}, {kE4M3, kE5M2}, {kE5M2, kE4M3}, {kE5M2, kE5M2}}};

inline constexpr std::array<FloatFormat, 5> kOutputs{kFp32, kBf16, kFp16, kE4M3, kE5M2};

inline constexpr InstructionModel kEarly16{16, 13, 13, -132, false};
inline constexpr InstructionModel kEarly32{32, 13, 13, -132, false};
inline constexpr InstructionModel kLate32{32, 25, 23, -133, true};

}  // namespace mmaemu::testing
