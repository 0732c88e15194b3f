// Operations that a Lanes may have of its own and that are composed of its others where it has not.
// L is Lanes, as a parameter so that what it lacks can be asked for.

#include <cstdint>

#include "numerics/formats.h"

namespace mmaemu::cpu::MMAEMU_TARGET {

// The exponent field of the larger magnitude of `field` (any sign and mantissa) and c, set to
// exactly `mantissa` below it. Why exact where magnitudes are compared with their mantissas: the
// larger magnitude has the larger exponent field. Precondition: neither is infinite or a NaN.
template <typename L>
typename L::Words larger_exponent(typename L::Words field, typename L::Floats c,
                                  uint32_t mantissa) {
  const typename L::Words mask = L::broadcast(kFp32.infinity());
  if constexpr (requires { L::larger_magnitude(c, c); }) {
    return L::and_or(L::bits(L::larger_magnitude(L::floats(field), c)), mask,
                     L::broadcast(mantissa));
  } else {
    return L::or_(L::max_words(L::and_(field, mask), L::and_(L::bits(c), mask)),
                  L::broadcast(mantissa));
  }
}

// `bytes` with byte Q of each dword, which is 0, replaced by the exponent field of x > 0.
template <typename L, int Q>
typename L::Words insert_exponent(typename L::Words bytes, typename L::Floats x) {
  if constexpr (requires { L::template insert_exponent<Q>(bytes, x); }) {
    return L::template insert_exponent<Q>(bytes, x);
  } else {
    const typename L::Words field = L::and_(L::bits(x), L::broadcast(kFp32.infinity()));
    if constexpr (Q == 3) return L::or_(bytes, L::template shift_left<1>(field));
    if constexpr (Q != 3) return L::or_(bytes, L::template shift_right<23 - 8 * Q>(field));
  }
}

// x + byte Q of each dword of counts, in each dword.
template <typename L, int Q>
typename L::Words add_byte(typename L::Words x, typename L::Words counts) {
  if constexpr (requires { L::template add_byte<Q>(x, counts); }) {
    return L::template add_byte<Q>(x, counts);
  } else if constexpr (Q == 3) {
    return L::add_words(x, L::template shift_right<24>(counts));
  } else {
    constexpr uint8_t kNone = 0x80;
    static constexpr uint8_t kPattern[16] = {Q,      kNone, kNone, kNone, Q + 4, kNone,
                                             kNone,  kNone, Q + 8, kNone, kNone, kNone,
                                             Q + 12, kNone, kNone, kNone};
    return L::add_words(x, L::lookup_bytes(counts, L::repeat_part(kPattern)));
  }
}

}  // namespace mmaemu::cpu::MMAEMU_TARGET
