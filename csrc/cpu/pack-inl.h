// Packing codes for the chain kernel. The encodings are packed_codes.h's; non-finite codes become
// +0 (R14).

#include <cstdint>
#include <cstring>

#include "cpu/packed_codes.h"
#include "numerics/formats.h"

namespace mmaemu::cpu::MMAEMU_TARGET {

// One vector of codes, decoded in bytes.
template <bool kIsE5M2>
struct DecodedBytes {
  using Words = Lanes::Words;
  static constexpr FloatFormat kFormat = kIsE5M2 ? kE5M2 : kE4M3;

  Words magnitude;  // the code without its sign; 0 for non-finite codes
  Words sign;       // bit 7

  explicit DecodedBytes(const uint8_t* codes) {
    const Words code = Lanes::load(codes);
    magnitude =
        Lanes::bytes_up_to(Lanes::and_(code, all_bytes(0x7F)), all_bytes(kFormat.max_finite));
    sign = Lanes::and_(code, all_bytes(0x80));
  }

  static Words all_bytes(uint32_t byte) { return Lanes::broadcast(0x01010101u * byte); }

  // The exponent field, at least 1: a subnormal shares emin (R2).
  Words field() const {
    const Words shifted = Lanes::template shift_right<kFormat.mantissa_bits>(magnitude);
    return Lanes::max_bytes(Lanes::and_(shifted, all_bytes(kFormat.exponent_mask())), all_bytes(1));
  }

  // e(x) + bias, 0 for zeros.
  template <int kBias>
  Words exponent() const {
    const Words e = Lanes::add_bytes(field(), all_bytes(kBias - kFormat.bias));
    return Lanes::where_zero(magnitude, Lanes::zero(), e);
  }

  // (exponent of the lowest set bit) + kLowBias with the sign in bit 7, kLowZero for zeros. A
  // mantissa of 0 means that the hidden bit is the lowest.
  Words low() const {
    static constexpr uint8_t kTrailingZeros[16] = {
        kFormat.mantissa_bits, 0, 1, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    static_assert(kFormat.mantissa_bits <= 3);
    const Words mantissa = Lanes::and_(magnitude, all_bytes(kFormat.mantissa_mask()));
    const Words zeros = Lanes::lookup_bytes(Lanes::repeat_part(kTrailingZeros), mantissa);
    constexpr uint32_t kOffset = (kLowBias - kFormat.bias - kFormat.mantissa_bits) & 0xFF;
    const Words e = Lanes::add_bytes(Lanes::add_bytes(field(), zeros), all_bytes(kOffset));
    return Lanes::where_zero(magnitude, all_bytes(kLowZero), Lanes::or_(e, sign));
  }

  // The values of bytes 4 j + q, in lanes j. y is the magnitude as if it were normal. Of a
  // subnormal, y = 2^(emin - 1) (1 + f) stands for 2^emin f = 2 y - 2^emin, which is below y; of
  // any other number, 2 y - 2^emin is not (in any rounding mode), and y is the value. No step has
  // an fp32 subnormal for an operand: each of those costs a hundred cycles.
  template <int Q>
  Lanes::Floats values() const {
    constexpr int kShift = kFp32.mantissa_bits - kFormat.mantissa_bits;
    constexpr uint32_t kMoveBias = static_cast<uint32_t>(kFp32.bias - kFormat.bias) << 23;
    constexpr float kSmallest = 1.0f / static_cast<float>(1 << -kFormat.emin());
    constexpr uint32_t kField = 0x7Fu << kShift;
    constexpr int kUp = kShift - 8 * Q;
    const Words place = [this] {
      if constexpr (kUp >= 0) return Lanes::template shift_left<kUp>(magnitude);
      if constexpr (kUp < 0) return Lanes::template shift_right<-kUp>(magnitude);
    }();
    const Lanes::Floats y = Lanes::floats(Lanes::add_words(
        Lanes::and_(place, Lanes::broadcast(kField)), Lanes::broadcast(kMoveBias)));
    const Lanes::Floats subnormal = Lanes::multiply_add_nearest(y, Lanes::broadcast_float(2),
                                                                Lanes::broadcast_float(-kSmallest));
    return Lanes::floats(and_or<Lanes>(Lanes::template shift_left<24 - 8 * Q>(sign),
                                       Lanes::broadcast(0x80000000u),
                                       Lanes::bits(Lanes::min_floats(y, subnormal))));
  }
};

// Byte q of each dword in all four of its bytes.
template <int Q>
Lanes::Words repeat_byte(Lanes::Words x) {
  static constexpr uint8_t kPattern[16] = {Q,      Q,      Q,      Q,     Q + 4, Q + 4,
                                           Q + 4,  Q + 4,  Q + 8,  Q + 8, Q + 8, Q + 8,
                                           Q + 12, Q + 12, Q + 12, Q + 12};
  return Lanes::lookup_bytes(x, Lanes::repeat_part(kPattern));
}

template <int Q, bool kIsE5M2>
void store_values(const DecodedBytes<kIsE5M2>& decoded, float* values) {
  Lanes::store_floats(values + Q * Lanes::kFloats, decoded.template values<Q>());
}
template <int Q>
void store_repeated(Lanes::Words bytes, uint32_t* out) {
  Lanes::store(out + Q * Lanes::kFloats, repeat_byte<Q>(bytes));
}

// `count` codes of one row of A, a multiple of kPanel, in the order of position_of.
template <bool kIsE5M2>
void pack_row(const uint8_t* codes, int64_t count, float* values, uint32_t* exponent,
              uint32_t* low) {
  for (int64_t i = 0; i < count; i += kPanel) {
    const DecodedBytes<kIsE5M2> decoded(codes + i);
    store_values<0>(decoded, values + i);
    store_values<1>(decoded, values + i);
    store_values<2>(decoded, values + i);
    store_values<3>(decoded, values + i);
    const Lanes::Words exponent_bytes = decoded.template exponent<kExponentBiasA>();
    store_repeated<0>(exponent_bytes, exponent + i);
    store_repeated<1>(exponent_bytes, exponent + i);
    store_repeated<2>(exponent_bytes, exponent + i);
    store_repeated<3>(exponent_bytes, exponent + i);
    const Lanes::Words low_bytes = decoded.low();
    store_repeated<0>(low_bytes, low + i);
    store_repeated<1>(low_bytes, low + i);
    store_repeated<2>(low_bytes, low + i);
    store_repeated<3>(low_bytes, low + i);
  }
}

// One panel of B from its codes [k][kPanel].
template <bool kIsE5M2>
void pack_panel(const uint8_t* codes, int64_t k_count, float* values, uint8_t* exponent,
                uint8_t* low) {
  for (int64_t i = 0; i < k_count * kPanel; i += kPanel) {
    const DecodedBytes<kIsE5M2> decoded(codes + i);
    store_values<0>(decoded, values + i);
    store_values<1>(decoded, values + i);
    store_values<2>(decoded, values + i);
    store_values<3>(decoded, values + i);
    Lanes::store(exponent + i, decoded.template exponent<kExponentBiasB>());
    Lanes::store(low + i, decoded.low());
  }
}

// 16 x 16 bytes transposed: out[i * out_stride + j] = in[j * in_stride + i].
inline void transpose_16x16(const uint8_t* in, int64_t in_stride, uint8_t* out,
                            int64_t out_stride) {
  Lanes::Part x[16];
  for (int j = 0; j < 16; ++j) x[j] = Lanes::load_part(in + j * in_stride);
  // Interleaving rows j and j + 8 four times moves each row index bit into the byte index.
  for (int stage = 0; stage < 4; ++stage) {
    Lanes::Part y[16];
    for (int j = 0; j < 8; ++j) {
      y[2 * j] = Lanes::interleave_first(x[j], x[j + 8]);
      y[2 * j + 1] = Lanes::interleave_last(x[j], x[j + 8]);
    }
    for (int j = 0; j < 16; ++j) x[j] = y[j];
  }
  for (int i = 0; i < 16; ++i) Lanes::store_part(out + i * out_stride, x[i]);
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
  const int64_t whole_n = columns & ~int64_t{15};
  const int64_t whole_k = count & ~int64_t{15};
  for (int64_t n = 0; n < whole_n; n += 16) {
    for (int64_t k = 0; k < whole_k; k += 16) {
      transpose_16x16(b + n * stride_n + k, stride_n, panel + k * kPanel + n, kPanel);
    }
  }
  for (int64_t n = 0; n < columns; ++n) {
    for (int64_t k = n < whole_n ? whole_k : 0; k < count; ++k) {
      panel[k * kPanel + n] = b[n * stride_n + k];
    }
  }
}

}  // namespace mmaemu::cpu::MMAEMU_TARGET
