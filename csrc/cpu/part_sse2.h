// A 16-byte part of a vector, what transpose_16x16 works on: the same for every x86 target.
#pragma once

#include <emmintrin.h>

#include <cstdint>

namespace mmaemu::cpu::MMAEMU_TARGET {

struct Sse2Part {
  using Part = __m128i;

  static Part load_part(const uint8_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  static void store_part(uint8_t* p, Part x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), x); }
  // Bytes of x and y in turn, from their first halves and from their last.
  static Part interleave_first(Part x, Part y) { return _mm_unpacklo_epi8(x, y); }
  static Part interleave_last(Part x, Part y) { return _mm_unpackhi_epi8(x, y); }
};

}  // namespace mmaemu::cpu::MMAEMU_TARGET
