#include "cpu/specials.h"

#include <algorithm>
#include <vector>

#include "numerics/specials.h"

namespace mmaemu::cpu {
namespace {

// Where one operand line (a row of A or a column of B) holds non-finite codes.
struct Line {
  bool has_nan = false;
  std::vector<int64_t> infinities;

  bool finite() const { return !has_nan && infinities.empty(); }
};

// Codes from this magnitude up are not finite: E4M3 has the NaN 0x7F, E5M2 Inf 0x7C and NaNs.
uint8_t first_non_finite(const FloatFormat& format) {
  return static_cast<uint8_t>(format.max_finite + 1);
}

Line scan_line(const FloatFormat& format, const uint8_t* codes, int64_t stride, int64_t k) {
  Line line;
  const uint8_t limit = first_non_finite(format);
  for (int64_t i = 0; i < k; ++i) {
    const uint8_t magnitude = codes[i * stride] & 0x7F;
    if (magnitude < limit) continue;
    if (format.has_infinity && magnitude == limit) {
      line.infinities.push_back(i);
    } else {
      line.has_nan = true;
      break;  // every output of this line is NaN
    }
  }
  return line;
}

bool any_non_finite(const FloatFormat& format, const uint8_t* codes, int64_t count) {
  const uint8_t limit = first_non_finite(format);
  uint8_t any = 0;
  for (int64_t i = 0; i < count; ++i) any |= static_cast<uint8_t>((codes[i] & 0x7F) >= limit);
  return any != 0;
}

std::vector<Line> scan_rows(const TileProblem& t) {
  std::vector<Line> lines(static_cast<size_t>(t.m));
  for (int64_t i = 0; i < t.m; ++i) {
    const uint8_t* row = t.a + i * t.a_stride_m;
    if (any_non_finite(t.fmt_a, row, t.k)) lines[i] = scan_line(t.fmt_a, row, 1, t.k);
  }
  return lines;
}

std::vector<Line> scan_columns(const TileProblem& t) {
  std::vector<Line> lines(static_cast<size_t>(t.n));
  if (t.b_stride_k == 1) {
    for (int64_t j = 0; j < t.n; ++j) {
      const uint8_t* column = t.b + j * t.b_stride_n;
      if (any_non_finite(t.fmt_b, column, t.k)) lines[j] = scan_line(t.fmt_b, column, 1, t.k);
    }
    return lines;
  }
  bool any = false;  // k-major: look along the contiguous direction first
  for (int64_t k = 0; k < t.k && !any; ++k) {
    any = any_non_finite(t.fmt_b, t.b + k * t.b_stride_k, t.n);
  }
  for (int64_t j = 0; any && j < t.n; ++j) {
    lines[j] = scan_line(t.fmt_b, t.b + j * t.b_stride_n, t.b_stride_k, t.k);
  }
  return lines;
}

uint32_t patched(const TileProblem& t, int64_t i, int64_t j, const Line& row, const Line& column,
                 uint32_t result) {
  if (row.has_nan || column.has_nan) return kFp32.canonical_nan;
  SpecialValue value;
  // Products that are not finite exist only where one of the two lines has an Inf.
  const auto add = [&](int64_t k) {
    value.add_product(decode(t.fmt_a, t.a[i * t.a_stride_m + k]),
                      decode(t.fmt_b, t.b[j * t.b_stride_n + k * t.b_stride_k]));
  };
  std::for_each(row.infinities.begin(), row.infinities.end(), add);
  std::for_each(column.infinities.begin(), column.infinities.end(), add);
  if (t.c != nullptr) value.add_accumulator(t.c[i * t.c_stride_m + j]);
  return value.patch(result);
}

}  // namespace

void patch_specials(const TileProblem& t) {
  const std::vector<Line> rows = scan_rows(t);
  const std::vector<Line> columns = scan_columns(t);
  for (int64_t i = 0; i < t.m; ++i) {
    for (int64_t j = 0; j < t.n; ++j) {
      if (t.c == nullptr && rows[i].finite() && columns[j].finite()) continue;
      uint32_t& acc = t.acc[i * t.acc_stride_m + j];
      acc = patched(t, i, j, rows[i], columns[j], acc);
    }
  }
}

}  // namespace mmaemu::cpu
