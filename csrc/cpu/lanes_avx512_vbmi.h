// The AVX-512 lanes with VBMI, BITALG, GFNI and VNNI: comparisons are stored as bit masks and
// counted eight at a time, and bytes go in and out of dwords in one instruction.
#pragma once

#include "cpu/lanes_avx512.h"

namespace mmaemu::cpu::MMAEMU_TARGET {

struct Avx512VbmiLanes : Avx512Lanes {
  using Mask = __mmask64;  // bit i belongs to byte i

  // Which bytes of x are less than those of y, both signed.
  static void store_less(Mask* mask, Words x, Words y) {
    _store_mask64(mask, _mm512_cmplt_epi8_mask(x, y));
  }

  // How many of 8 masks have bit i, in byte i: their bytes are transposed, then the bits of each
  // 8 x 8 (the order of the bits in a byte does not matter).
  static Words count_masks(const Mask* masks) {
    const Words bytes = _mm512_permutexvar_epi8(_mm512_load_si512(kTransposed), load(masks));
    const Words bits = _mm512_gf2p8affine_epi64_epi8(
        _mm512_set1_epi64(static_cast<int64_t>(0x8040201008040201u)), bytes, 0);
    return _mm512_popcnt_epi8(bits);
  }

  // `bytes` with byte Q of each dword replaced by the exponent field of x.
  template <int Q>
  static Words insert_exponent(Words bytes, Floats x) {
    const Words from = _mm512_set1_epi64(static_cast<int64_t>(0x3737373717171717u));
    constexpr uint64_t kWhere = 0x1111111111111111u << Q;
    return _mm512_mask_multishift_epi64_epi8(bytes, kWhere, from, bits(x));
  }

  // x + byte Q of each dword of counts, in each dword.
  template <int Q>
  static Words add_byte(Words x, Words counts) {
    return _mm512_dpbusd_epi32(x, counts, broadcast(1u << (8 * Q)));
  }

 private:
  alignas(64) static constexpr uint8_t kTransposed[64] = {
      0,  8,  16, 24, 32, 40, 48, 56, 1,  9,  17, 25, 33, 41, 49, 57, 2,  10, 18, 26, 34, 42,
      50, 58, 3,  11, 19, 27, 35, 43, 51, 59, 4,  12, 20, 28, 36, 44, 52, 60, 5,  13, 21, 29,
      37, 45, 53, 61, 6,  14, 22, 30, 38, 46, 54, 62, 7,  15, 23, 31, 39, 47, 55, 63};
};

}  // namespace mmaemu::cpu::MMAEMU_TARGET
