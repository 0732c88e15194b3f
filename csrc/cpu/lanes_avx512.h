// The AVX-512 (F, BW, DQ, VL) lanes: one vector of 16 fp32, of 16 dwords or of 64 bytes.
// Rounding modes are per instruction.
#pragma once

// GCC 12 and 13 warn about their own _mm512_undefined_*() once it is inlined (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstdint>

#include "cpu/part_sse2.h"

namespace mmaemu::cpu::MMAEMU_TARGET {

struct Avx512Lanes : Sse2Part {
  static constexpr int kFloats = 16;
  static constexpr int kRowBlock = 4;  // rows that share each load of B: 16 accumulators of 32
  using Floats = __m512;
  using Words = __m512i;

  struct TowardZeroScope {
    TowardZeroScope() {}  // every instruction below names its rounding
  };
  struct NearestScope {
    NearestScope() {}  // a task's own mode
  };

  static Words load(const void* p) { return _mm512_load_si512(p); }
  static void store(void* p, Words x) { _mm512_store_si512(p, x); }
  static Words broadcast(uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
  static Words zero() { return _mm512_setzero_si512(); }
  static Words bits(Floats x) { return _mm512_castps_si512(x); }
  static Floats floats(Words x) { return _mm512_castsi512_ps(x); }

  static Floats load_floats(const float* p) { return _mm512_load_ps(p); }
  static void store_floats(float* p, Floats x) { _mm512_store_ps(p, x); }
  static Floats broadcast_float(float x) { return _mm512_set1_ps(x); }

  static Words and_(Words x, Words y) { return _mm512_and_si512(x, y); }
  static Words or_(Words x, Words y) { return _mm512_or_si512(x, y); }
  static Words and_or(Words x, Words keep, Words set) {  // (x & keep) | set
    return _mm512_ternarylogic_epi32(x, keep, set, 0xEA);
  }
  template <int N>
  static Words shift_left(Words x) {
    return _mm512_slli_epi32(x, N);
  }
  template <int N>
  static Words shift_right(Words x) {
    return _mm512_srli_epi32(x, N);
  }
  static Words add_words(Words x, Words y) { return _mm512_add_epi32(x, y); }

  static Words add_bytes(Words x, Words y) { return _mm512_add_epi8(x, y); }
  static Words max_bytes(Words x, Words y) { return _mm512_max_epu8(x, y); }
  static Words min_bytes(Words x, Words y) { return _mm512_min_epu8(x, y); }
  static Words subtract_bytes_saturating(Words x, Words y) { return _mm512_subs_epu8(x, y); }
  // counts + 1 in each byte where x < y, both signed.
  static Words count_less(Words counts, Words x, Words y) {
    return _mm512_mask_sub_epi8(counts, _mm512_cmplt_epi8_mask(x, y), counts, _mm512_set1_epi8(-1));
  }

  // Byte i of each 16-byte part of `table` for each index byte i < 16, 0 for index bytes from 0x80.
  static Words lookup_bytes(Words table, Words index) { return _mm512_shuffle_epi8(table, index); }
  static Words repeat_part(const uint8_t (&part)[16]) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(part)));
  }
  // Bytes of x up to `limit`, the others 0; both below 128.
  static Words bytes_up_to(Words x, Words limit) {
    return _mm512_maskz_mov_epi8(_mm512_cmple_epu8_mask(x, limit), x);
  }
  // Per byte: `zero` where test is 0, else `other`.
  static Words where_zero(Words test, Words zero, Words other) {
    return _mm512_mask_mov_epi8(zero, _mm512_test_epi8_mask(test, test), other);
  }

  static Floats multiply_add_toward_zero(Floats a, Floats b, Floats sum) {
    return _mm512_fmadd_round_ps(a, b, sum, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  }
  // base + trunc(c), base positive and large: toward zero is a floor for c >= 0, and upward is a
  // ceiling, so the truncation, for c < 0.
  static Floats add_truncated(Floats base, Floats c) {
    const Floats down = _mm512_add_round_ps(base, c, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    return _mm512_mask_add_round_ps(down, _mm512_movepi32_mask(bits(c)), base, c,
                                    _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
  }
  static Floats min_floats(Floats x, Floats y) { return _mm512_min_ps(x, y); }
  static Floats multiply_add_nearest(Floats a, Floats b, Floats c) {
    return _mm512_fmadd_ps(a, b, c);
  }
  static Floats add_nearest(Floats x, Floats y) { return _mm512_add_ps(x, y); }
  static Floats subtract_exact(Floats x, Floats y) { return _mm512_sub_ps(x, y); }
};

}  // namespace mmaemu::cpu::MMAEMU_TARGET
