#include "cpu/specials.h"

#include <algorithm>
#include <array>
#include <vector>

#include "numerics/specials.h"

namespace mmaemu::cpu {
namespace {

// What one operand line (a row of A or a column of B) holds besides finite codes.
struct Line {
  bool has_nan = false;
  bool has_infinity = false;

  bool finite() const { return !has_nan && !has_infinity; }
};

// Codes from this magnitude up are not finite: E4M3 has the NaN 0x7F, E5M2 Inf 0x7C and NaNs.
uint8_t first_non_finite(const FloatFormat& format) {
  return static_cast<uint8_t>(format.max_finite + 1);
}

// Magnitude of an Inf code; 0xFF, which no magnitude is, where there is none.
uint8_t infinity_code(const FloatFormat& format) {
  return format.has_infinity ? first_non_finite(format) : 0xFF;
}

// Elements looked at together: enough to vectorise, few enough to stop early and to copy.
constexpr int64_t kBlock = 1024;

// Calls each(begin, codes, count) for stretches of a line, contiguous whatever its stride; each
// returns whether to go on.
template <typename Each>
void for_each_block(const uint8_t* line, int64_t stride, int64_t k, const Each& each) {
  std::array<uint8_t, kBlock> copy;
  for (int64_t begin = 0; begin < k; begin += kBlock) {
    const int64_t count = std::min(kBlock, k - begin);
    const uint8_t* codes = line + begin * stride;
    if (stride != 1) {
      for (int64_t i = 0; i < count; ++i) copy[static_cast<size_t>(i)] = codes[i * stride];
      codes = copy.data();
    }
    if (!each(begin, codes, count)) return;
  }
}

Line scan_line(const FloatFormat& format, const uint8_t* codes, int64_t stride, int64_t k) {
  Line line;
  const uint8_t infinity = infinity_code(format);
  // An Inf is the first code that is not finite; all others are NaN.
  const auto first_nan = static_cast<uint8_t>(first_non_finite(format) + format.has_infinity);
  for_each_block(codes, stride, k, [&](int64_t, const uint8_t* block, int64_t count) {
    uint8_t infinite = 0;
    uint8_t nan = 0;
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t magnitude = block[i] & 0x7F;
      infinite |= static_cast<uint8_t>(magnitude == infinity);
      nan |= static_cast<uint8_t>(magnitude >= first_nan);
    }
    line.has_infinity |= infinite != 0;
    line.has_nan |= nan != 0;
    return !line.has_nan;  // every output of a line with a NaN is NaN
  });
  return line;
}

std::vector<Line> scan_lines(const FloatFormat& format, const uint8_t* codes, int64_t lines,
                             int64_t line_stride, int64_t k_stride, int64_t k) {
  std::vector<Line> found(static_cast<size_t>(lines));
  for (int64_t i = 0; i < lines; ++i) {
    found[static_cast<size_t>(i)] = scan_line(format, codes + i * line_stride, k_stride, k);
  }
  return found;
}

// A k-major B: one pass along its contiguous direction tells whether any column needs a look.
bool all_finite(const TileProblem& t) {
  const uint8_t limit = first_non_finite(t.fmt_b);
  for (int64_t k = 0; k < t.k; ++k) {
    const uint8_t* codes = t.b + k * t.b_stride_k;
    uint8_t special = 0;
    for (int64_t j = 0; j < t.n; ++j) special |= static_cast<uint8_t>((codes[j] & 0x7F) >= limit);
    if (special != 0) return false;
  }
  return true;
}

std::vector<Line> scan_columns(const TileProblem& t) {
  if (t.b_stride_k != 1 && all_finite(t)) return std::vector<Line>(static_cast<size_t>(t.n));
  return scan_lines(t.fmt_b, t.b, t.n, t.b_stride_n, t.b_stride_k, t.k);
}

// The products of two lines without NaN codes, some of them infinite.
SpecialValue infinite_products(const TileProblem& t, int64_t i, int64_t j) {
  SpecialValue value;
  const uint8_t infinity_a = infinity_code(t.fmt_a);
  const uint8_t infinity_b = infinity_code(t.fmt_b);
  const uint8_t* row = t.a + i * t.a_stride_m;
  const uint8_t* column = t.b + j * t.b_stride_n;
  for_each_block(column, t.b_stride_k, t.k, [&](int64_t k, const uint8_t* b, int64_t count) {
    const uint8_t* a = row + k;
    uint8_t nan = 0;
    uint8_t positive = 0;
    uint8_t negative = 0;
    for (int64_t p = 0; p < count; ++p) {
      const uint8_t magnitude_a = a[p] & 0x7F;
      const uint8_t magnitude_b = b[p] & 0x7F;
      const uint8_t infinite =
          static_cast<uint8_t>((magnitude_a == infinity_a) | (magnitude_b == infinity_b));
      const uint8_t zero = static_cast<uint8_t>((magnitude_a == 0) | (magnitude_b == 0));
      const uint8_t sign = static_cast<uint8_t>((a[p] ^ b[p]) >> 7);
      nan |= static_cast<uint8_t>(infinite & zero);
      negative |= static_cast<uint8_t>(infinite & sign);
      positive |= static_cast<uint8_t>(infinite & (sign ^ 1));
    }
    // Inf * 0 is NaN whatever the signs, so it does not matter that it counts as an Inf, too.
    value.add(nan != 0, positive != 0, negative != 0);
    return !value.is_nan();
  });
  return value;
}

}  // namespace

void patch_specials(const TileProblem& t) {
  const std::vector<Line> rows = scan_lines(t.fmt_a, t.a, t.m, t.a_stride_m, 1, t.k);
  const std::vector<Line> columns = scan_columns(t);
  const auto finite = [](const Line& line) { return line.finite(); };
  if (t.c == nullptr && std::all_of(rows.begin(), rows.end(), finite) &&
      std::all_of(columns.begin(), columns.end(), finite)) {
    return;
  }
  for (int64_t i = 0; i < t.m; ++i) {
    const Line& row = rows[static_cast<size_t>(i)];
    for (int64_t j = 0; j < t.n; ++j) {
      const Line& column = columns[static_cast<size_t>(j)];
      SpecialValue value;
      if (row.has_nan || column.has_nan) {
        value.add(true, false, false);
      } else if (row.has_infinity || column.has_infinity) {
        value = infinite_products(t, i, j);
      }
      if (t.c != nullptr) value.add_accumulator(t.c[i * t.c_stride_m + j]);
      uint32_t& acc = t.acc[i * t.acc_stride_m + j];
      acc = value.patch(acc);
    }
  }
}

}  // namespace mmaemu::cpu
