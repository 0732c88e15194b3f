#include "cpu/portable.h"

#include <array>
#include <cstring>

#include "numerics/specials.h"

namespace mmaemu::cpu {
namespace {

using DecodedTable = std::array<Decoded, 256>;

// Non-finite codes are +0 here (R14).
constexpr DecodedTable finite_codes(const FloatFormat& format) {
  DecodedTable table{};
  for (uint32_t code = 0; code < 256; ++code) {
    table[code] = decode_finite(format, code);
  }
  return table;
}

constexpr DecodedTable kE4M3Codes = finite_codes(kE4M3);
constexpr DecodedTable kE5M2Codes = finite_codes(kE5M2);

const DecodedTable& table_of(const FloatFormat& format) {
  return format.has_infinity ? kE5M2Codes : kE4M3Codes;
}

bool runs_everything(const TileProblem&) { return true; }

std::unique_ptr<TileScratch> no_scratch() { return nullptr; }

void accumulate_tile(const TileProblem& t, TileScratch*) {
  const DecodedTable& codes_a = table_of(t.fmt_a);
  const DecodedTable& codes_b = table_of(t.fmt_b);
  for (int64_t i = 0; i < t.m; ++i) {
    for (int64_t j = 0; j < t.n; ++j) {
      const uint8_t* a = t.a + i * t.a_stride_m;
      const uint8_t* b = t.b + j * t.b_stride_n;
      uint32_t c = t.c == nullptr ? 0 : t.c[i * t.c_stride_m + j];
      if (is_nan_fp32(c) || is_inf_fp32(c)) c = 0;
      t.acc[i * t.acc_stride_m + j] = accumulate(t.model, t.plan, c, t.k, [&](int64_t k) {
        return multiply_exact(t.fmt_a, codes_a[a[k]], t.fmt_b, codes_b[b[k * t.b_stride_k]]);
      });
    }
  }
}

void finish_row(const Epilogue& epilogue, const uint32_t* acc, int64_t count, void* out) {
  const size_t size = static_cast<size_t>(epilogue.out_format.bits() / 8);
  auto* bytes = static_cast<unsigned char*>(out);
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t code = apply_epilogue(epilogue, acc[i]);
    std::memcpy(bytes + static_cast<size_t>(i) * size, &code, size);  // little endian
  }
}

}  // namespace

const KernelTarget& portable_target() {
  static constexpr KernelTarget kTarget{"scalar",   {64, 64, 1},     runs_everything,
                                        no_scratch, accumulate_tile, finish_row};
  return kTarget;
}

}  // namespace mmaemu::cpu
