// Operations that a Lanes may have of its own and that are composed of its others where it has not.
// L is Lanes, as a parameter so that what it lacks can be asked for.

#include <cstdint>

namespace mmaemu::cpu::MMAEMU_TARGET {

// (x & keep) | set.
template <typename L>
typename L::Words and_or(typename L::Words x, typename L::Words keep, typename L::Words set) {
  if constexpr (requires { L::and_or(x, keep, set); }) {
    return L::and_or(x, keep, set);
  } else {
    return L::or_(L::and_(x, keep), set);
  }
}

// `bytes` with byte Q of each dword, which is 0, replaced by the exponent field of x.
template <typename L, int Q>
typename L::Words insert_exponent(typename L::Words bytes, typename L::Floats x) {
  if constexpr (requires { L::template insert_exponent<Q>(bytes, x); }) {
    return L::template insert_exponent<Q>(bytes, x);
  } else {
    const typename L::Words byte = L::broadcast(0xFFu << (8 * Q));
    if constexpr (Q == 3) {
      return and_or<L>(L::template shift_left<1>(L::bits(x)), byte, bytes);
    } else {
      return and_or<L>(L::template shift_right<23 - 8 * Q>(L::bits(x)), byte, bytes);
    }
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
