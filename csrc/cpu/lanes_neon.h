// The NEON (Advanced SIMD of AArch64) lanes: one vector of 4 fp32, of 4 dwords or of 16 bytes. The
// rounding mode comes from FPCR, so chains run inside a TowardZeroScope.
//
// Where the steps differ from x86's:
//  - FMLA rounds once, like VFMADD, in FPCR's mode: the scope's toward zero. FPCR is 0 apart from
//    that, so nothing is flushed (FZ, FZ16, FIZ off) and no alternate behaviour is on (AH off).
//  - Comparisons write 0 or 0xFF to each byte, so subtracting the mask counts, as on AVX2.
//  - Byte operations exist signed and unsigned: CMGT of signed bytes decides "negative and not on
//    the grid", UMAX, UMIN and UQSUB take exponents unsigned.
//  - TBL gives 0 for every index from 16 up, more than lookup_bytes promises.
// Cost per 16 products (one vector of bytes, four of floats), in vector operations: 4 FMLA, which
// takes A's value by element; 2 for E (ADD, UMAX); 3 for the count (ADD, CMGT, SUB); 2 to repeat
// A's bytes (DUP, or LD1R's). That is 11, or 0.7 per product, and 3 loads of A and half of 6 loads
// of B. A block's start and end are about 60 operations for 16 columns, 0.12 per product of 32.
#pragma once

#include <arm_neon.h>

#include <bit>
#include <cstdint>

#include "cpu/ieee_env.h"

namespace mmaemu::cpu::MMAEMU_TARGET {

static_assert(std::endian::native == std::endian::little, "byte 4 j + q is bits 8 q of dword j");

struct Lanes {
  static constexpr int kFloats = 4;
  static constexpr int kRowBlock = 2;  // 8 sums, their 8 starts, 4 vectors of B, 6 others: 26 of 32
  using Floats = float32x4_t;
  using Words = uint32x4_t;
  using Part = uint8x16_t;

  struct TowardZeroScope : ScopedFpControl {
    TowardZeroScope() : ScopedFpControl(kTowardZeroControl) {}
  };
  struct NearestScope : ScopedFpControl {
    NearestScope() : ScopedFpControl(kIeeeControl) {}
  };

  // By bytes, which may alias every type.
  static Words load(const void* p) { return words(load_part(static_cast<const uint8_t*>(p))); }
  static void store(void* p, Words x) { store_part(static_cast<uint8_t*>(p), bytes(x)); }
  static Words broadcast(uint32_t x) { return vdupq_n_u32(x); }
  static Words zero() { return vdupq_n_u32(0); }
  static Words bits(Floats x) { return vreinterpretq_u32_f32(x); }
  static Floats floats(Words x) { return vreinterpretq_f32_u32(x); }

  static Floats load_floats(const float* p) { return vld1q_f32(p); }
  static void store_floats(float* p, Floats x) { vst1q_f32(p, x); }
  static Floats broadcast_float(float x) { return vdupq_n_f32(x); }

  static Words and_(Words x, Words y) { return vandq_u32(x, y); }
  static Words or_(Words x, Words y) { return vorrq_u32(x, y); }
  template <int N>
  static Words shift_left(Words x) {
    return vshlq_n_u32(x, N);
  }
  template <int N>
  static Words shift_right(Words x) {
    return vshrq_n_u32(x, N);
  }
  static Words add_words(Words x, Words y) { return vaddq_u32(x, y); }

  static Words add_bytes(Words x, Words y) { return words(vaddq_u8(bytes(x), bytes(y))); }
  static Words max_bytes(Words x, Words y) { return words(vmaxq_u8(bytes(x), bytes(y))); }
  static Words min_bytes(Words x, Words y) { return words(vminq_u8(bytes(x), bytes(y))); }
  static Words subtract_bytes_saturating(Words x, Words y) {
    return words(vqsubq_u8(bytes(x), bytes(y)));
  }
  // counts + 1 in each byte where x < y, both signed.
  static Words count_less(Words counts, Words x, Words y) {
    const uint8x16_t less = vcgtq_s8(vreinterpretq_s8_u32(y), vreinterpretq_s8_u32(x));
    return words(vsubq_u8(bytes(counts), less));
  }

  // Byte i of `table` for each index byte i < 16, 0 for the others.
  static Words lookup_bytes(Words table, Words index) {
    return words(vqtbl1q_u8(bytes(table), bytes(index)));
  }
  static Words repeat_part(const uint8_t (&part)[16]) { return words(load_part(part)); }
  // Bytes of x up to `limit`, the others 0; both below 128.
  static Words bytes_up_to(Words x, Words limit) {
    return and_(x, words(vcleq_u8(bytes(x), bytes(limit))));
  }
  // Per byte: `zero` where test is 0, else `other`.
  static Words where_zero(Words test, Words zero, Words other) {
    return words(vbslq_u8(vceqzq_u8(bytes(test)), bytes(zero), bytes(other)));
  }

  static Floats multiply_add_toward_zero(Floats a, Floats b, Floats sum) {
    return vfmaq_f32(sum, a, b);
  }
  // base + trunc(c): |c| is truncated against the base, then given its sign again. All three
  // additions are on the base's grid, so only the first one rounds.
  static Floats add_truncated(Floats base, Floats c) {
    const Floats truncated = vsubq_f32(vaddq_f32(base, vabsq_f32(c)), base);
    return vaddq_f32(base, vbslq_f32(broadcast(0x80000000u), c, truncated));
  }
  static Floats min_floats(Floats x, Floats y) { return vminq_f32(x, y); }
  static Floats multiply_add_nearest(Floats a, Floats b, Floats sum) {
    return vfmaq_f32(sum, a, b);
  }
  static Floats add_nearest(Floats x, Floats y) { return vaddq_f32(x, y); }
  static Floats subtract_exact(Floats x, Floats y) { return vsubq_f32(x, y); }

  // What transpose_16x16 works on: here a whole vector.
  static Part load_part(const uint8_t* p) { return vld1q_u8(p); }
  static void store_part(uint8_t* p, Part x) { vst1q_u8(p, x); }
  // Bytes of x and y in turn, from their first halves and from their last.
  static Part interleave_first(Part x, Part y) { return vzip1q_u8(x, y); }
  static Part interleave_last(Part x, Part y) { return vzip2q_u8(x, y); }

 private:
  static uint8x16_t bytes(Words x) { return vreinterpretq_u8_u32(x); }
  static Words words(uint8x16_t x) { return vreinterpretq_u32_u8(x); }
};

}  // namespace mmaemu::cpu::MMAEMU_TARGET
