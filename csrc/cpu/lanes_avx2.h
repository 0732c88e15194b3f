// The AVX2 + FMA lanes: one vector of 8 fp32, of 8 dwords or of 32 bytes. The rounding mode comes
// from MXCSR, so chains run inside a TowardZeroScope.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "cpu/ieee_env.h"
#include "cpu/part_sse2.h"

namespace mmaemu::cpu::MMAEMU_TARGET {

struct Lanes : Sse2Part {
  static constexpr int kFloats = 8;
  static constexpr int kRowBlock = 2;  // 8 accumulators, 4 vectors of B and one of A: 13 of 16
  using Floats = __m256;
  using Words = __m256i;

  struct TowardZeroScope : ScopedFpControl {
    TowardZeroScope() : ScopedFpControl(kTowardZeroControl) {}
  };
  struct NearestScope : ScopedFpControl {
    NearestScope() : ScopedFpControl(kIeeeControl) {}
  };

  static Words load(const void* p) { return _mm256_load_si256(static_cast<const __m256i*>(p)); }
  static void store(void* p, Words x) { _mm256_store_si256(static_cast<__m256i*>(p), x); }
  static Words broadcast(uint32_t x) { return _mm256_set1_epi32(static_cast<int>(x)); }
  static Words zero() { return _mm256_setzero_si256(); }
  static Words bits(Floats x) { return _mm256_castps_si256(x); }
  static Floats floats(Words x) { return _mm256_castsi256_ps(x); }

  static Floats load_floats(const float* p) { return _mm256_load_ps(p); }
  static void store_floats(float* p, Floats x) { _mm256_store_ps(p, x); }
  static Floats broadcast_float(float x) { return _mm256_set1_ps(x); }

  static Words and_(Words x, Words y) { return _mm256_and_si256(x, y); }
  static Words or_(Words x, Words y) { return _mm256_or_si256(x, y); }
  template <int N>
  static Words shift_left(Words x) {
    return _mm256_slli_epi32(x, N);
  }
  template <int N>
  static Words shift_right(Words x) {
    return _mm256_srli_epi32(x, N);
  }
  static Words add_words(Words x, Words y) { return _mm256_add_epi32(x, y); }

  static Words add_bytes(Words x, Words y) { return _mm256_add_epi8(x, y); }
  static Words max_bytes(Words x, Words y) { return _mm256_max_epu8(x, y); }
  static Words min_bytes(Words x, Words y) { return _mm256_min_epu8(x, y); }
  static Words subtract_bytes_saturating(Words x, Words y) { return _mm256_subs_epu8(x, y); }
  // counts + 1 in each byte where x < y, both signed.
  static Words count_less(Words counts, Words x, Words y) {
    return _mm256_sub_epi8(counts, _mm256_cmpgt_epi8(y, x));
  }

  // Byte i of each 16-byte part of `table` for each index byte i < 16, 0 for index bytes from 0x80.
  static Words lookup_bytes(Words table, Words index) { return _mm256_shuffle_epi8(table, index); }
  static Words repeat_part(const uint8_t (&part)[16]) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(part)));
  }
  // Bytes of x up to `limit`, the others 0; both below 128.
  static Words bytes_up_to(Words x, Words limit) {
    return _mm256_andnot_si256(_mm256_cmpgt_epi8(x, limit), x);
  }
  // Per byte: `zero` where test is 0, else `other`.
  static Words where_zero(Words test, Words zero, Words other) {
    return _mm256_blendv_epi8(other, zero, _mm256_cmpeq_epi8(test, _mm256_setzero_si256()));
  }

  static Floats multiply_add_toward_zero(Floats a, Floats b, Floats sum) {
    return _mm256_fmadd_ps(a, b, sum);
  }
  // base + trunc(c): |c| is truncated against the base, then given its sign again. All three
  // additions are on the base's grid, so only the first one rounds.
  static Floats add_truncated(Floats base, Floats c) {
    const Floats sign = _mm256_and_ps(c, _mm256_set1_ps(-0.0f));
    const Floats magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), c);
    const Floats truncated = _mm256_sub_ps(_mm256_add_ps(base, magnitude), base);
    return _mm256_add_ps(base, _mm256_or_ps(truncated, sign));
  }
  static Floats min_floats(Floats x, Floats y) { return _mm256_min_ps(x, y); }
  static Floats multiply_add_nearest(Floats a, Floats b, Floats c) {
    return _mm256_fmadd_ps(a, b, c);
  }
  static Floats add_nearest(Floats x, Floats y) { return _mm256_add_ps(x, y); }
  static Floats subtract_exact(Floats x, Floats y) { return _mm256_sub_ps(x, y); }
};

}  // namespace mmaemu::cpu::MMAEMU_TARGET
