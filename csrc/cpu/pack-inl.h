// Packing codes for the chain kernel: plain loops that the compiler vectorises for the target.
// The encodings are packed_codes.h's; non-finite codes become +0 (R14).

#include <cstdint>
#include <cstring>

#include "cpu/packed_codes.h"
#include "numerics/formats.h"

namespace mmaemu::cpu::MMAEMU_TARGET {

// e(x) + bias of a code, 0 for zeros and non-finite codes.
template <bool kIsE5M2, int kBias>
inline uint8_t exponent_byte_of(uint8_t code) {
  constexpr FloatFormat kFormat = kIsE5M2 ? kE5M2 : kE4M3;
  const uint8_t magnitude = code & 0x7F;
  const uint8_t field = magnitude >> kFormat.mantissa_bits;
  const uint8_t e = static_cast<uint8_t>((field > 1 ? field : 1) + (kBias - kFormat.bias));
  return magnitude == 0 || magnitude > kFormat.max_finite ? 0 : e;
}

// (exponent of the lowest set bit) + kLowBias with the sign in bit 7, kLowZero for zeros.
template <bool kIsE5M2>
inline uint8_t low_byte_of(uint8_t code) {
  constexpr FloatFormat kFormat = kIsE5M2 ? kE5M2 : kE4M3;
  constexpr int kM = kFormat.mantissa_bits;
  const uint8_t magnitude = code & 0x7F;
  const uint8_t field = magnitude >> kM;
  // Trailing zeros of the mantissa; the hidden bit follows it (a zero mantissa is a normal here,
  // zeros are replaced below).
  uint8_t zeros = kM;
  if constexpr (kM == 3) zeros = (magnitude & 4) != 0 ? 2 : zeros;
  zeros = (magnitude & 2) != 0 ? 1 : zeros;
  zeros = (magnitude & 1) != 0 ? 0 : zeros;
  const uint8_t e = static_cast<uint8_t>((field > 1 ? field : 1) + zeros +
                                         (kLowBias - kFormat.bias - kM));
  const uint8_t low = static_cast<uint8_t>(e | (code & 0x80));
  return magnitude == 0 || magnitude > kFormat.max_finite ? uint8_t{kLowZero} : low;
}

// The value of a code in the low byte of `word`: its magnitude as an fp32 with the same mantissa
// and exponent field, times the power of two that moves the bias; both exact.
template <bool kIsE5M2>
inline float value_of(uint32_t word) {
  constexpr FloatFormat kFormat = kIsE5M2 ? kE5M2 : kE4M3;
  constexpr int kShift = kFp32.mantissa_bits - kFormat.mantissa_bits;
  constexpr float kMoveBias = kIsE5M2 ? 0x1p112f : 0x1p120f;
  static_assert(kFp32.bias - kFormat.bias == (kIsE5M2 ? 112 : 120));
  uint32_t magnitude = word & 0x7F;
  magnitude = magnitude > kFormat.max_finite ? 0 : magnitude;
  const uint32_t bits = (magnitude << kShift) | ((word & 0x80) << 24);
  float small;
  std::memcpy(&small, &bits, sizeof(small));
  return small * kMoveBias;
}

// One row of A: `count` codes to values and repeated bytes.
template <bool kIsE5M2>
void pack_row(const uint8_t* codes, int64_t count, float* values, uint32_t* exponent,
              uint32_t* low) {
  for (int64_t i = 0; i < count; ++i) values[i] = value_of<kIsE5M2>(codes[i]);
  for (int64_t i = 0; i < count; ++i) {
    exponent[i] = 0x01010101u * exponent_byte_of<kIsE5M2, kExponentBiasA>(codes[i]);
  }
  for (int64_t i = 0; i < count; ++i) low[i] = 0x01010101u * low_byte_of<kIsE5M2>(codes[i]);
}

// One panel of B from its codes [k][kPanel].
template <bool kIsE5M2>
void pack_panel(const uint8_t* codes, int64_t k_count, float* values, uint8_t* exponent,
                uint8_t* low) {
  const int64_t count = k_count * kPanel;
  for (int64_t i = 0; i < count; ++i) {
    exponent[i] = exponent_byte_of<kIsE5M2, kExponentBiasB>(codes[i]);
  }
  for (int64_t i = 0; i < count; ++i) low[i] = low_byte_of<kIsE5M2>(codes[i]);
  for (int64_t k = 0; k < k_count; ++k) {
    uint32_t words[Lanes::kFloats];
    std::memcpy(words, codes + k * kPanel, sizeof(words));
    float* row = values + k * kPanel;
    for (int q = 0; q < 4; ++q) {
      for (int j = 0; j < Lanes::kFloats; ++j) {
        row[q * Lanes::kFloats + j] = value_of<kIsE5M2>(words[j] >> (8 * q));
      }
    }
  }
}

// 8 x 8 bytes transposed: out[i * out_stride + j] = in[j * in_stride + i].
inline void transpose_8x8(const uint8_t* in, int64_t in_stride, uint8_t* out, int64_t out_stride) {
  uint64_t rows[8];
  for (int j = 0; j < 8; ++j) std::memcpy(&rows[j], in + j * in_stride, 8);
  const auto exchange = [&](int distance, int bits, uint64_t mask) {
    for (int j = 0; j < 8; ++j) {
      if ((j & distance) != 0) continue;
      const uint64_t swap = ((rows[j] >> bits) ^ rows[j + distance]) & mask;
      rows[j] ^= swap << bits;
      rows[j + distance] ^= swap;
    }
  };
  exchange(4, 32, 0x00000000FFFFFFFFull);
  exchange(2, 16, 0x0000FFFF0000FFFFull);
  exchange(1, 8, 0x00FF00FF00FF00FFull);
  for (int i = 0; i < 8; ++i) std::memcpy(out + i * out_stride, &rows[i], 8);
}

// Copies codes of `columns` columns and `count` consecutive k into panel rows [count][kPanel].
inline void gather_panel(const uint8_t* b, int64_t stride_n, int64_t stride_k, int64_t columns,
                         int64_t count, uint8_t* panel) {
  if (stride_k != 1) {
    for (int64_t k = 0; k < count; ++k) {
      std::memcpy(panel + k * kPanel, b + k * stride_k, static_cast<size_t>(columns));
    }
    return;
  }
  const int64_t whole_n = columns & ~int64_t{7};
  const int64_t whole_k = count & ~int64_t{7};
  for (int64_t n = 0; n < whole_n; n += 8) {
    for (int64_t k = 0; k < whole_k; k += 8) {
      transpose_8x8(b + n * stride_n + k, stride_n, panel + k * kPanel + n, kPanel);
    }
  }
  for (int64_t n = 0; n < columns; ++n) {
    for (int64_t k = n < whole_n ? whole_k : 0; k < count; ++k) {
      panel[k * kPanel + n] = b[n * stride_n + k];
    }
  }
}

}  // namespace mmaemu::cpu::MMAEMU_TARGET
