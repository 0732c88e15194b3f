// Counts, per row and byte lane of a block, how often one byte is less than another.

#include <cstdint>

namespace mmaemu::cpu::MMAEMU_TARGET {

// Any Lanes: counters in registers, one byte per lane. Cost per comparison: L::count_less.
template <typename L, int kNfma, int kRows>
class Tally {
  static_assert(kNfma < 256, "the byte counts do not wrap");

 public:
  Tally() {
    for (int r = 0; r < kRows; ++r) counts_[r] = L::zero();
  }
  // Takes the comparison of element i < kNfma of row r in; each pair once.
  void add(int r, int, typename L::Words x, typename L::Words limit) {
    counts_[r] = L::count_less(counts_[r], x, limit);
  }
  typename L::Words counts(int r) const { return counts_[r]; }

 private:
  typename L::Words counts_[kRows];
};

// Lanes that store a comparison as a bit mask: one comparison and a store each, then half an
// operation to count it. Best counted when the stores have left the store buffer.
template <typename L, int kNfma, int kRows>
  requires requires { typename L::Mask; }
class Tally<L, kNfma, kRows> {
  static constexpr int kTogether = 8;  // masks counted at a time
  static_assert(kNfma % kTogether == 0 && kNfma < 256, "the byte counts do not wrap");

 public:
  void add(int r, int i, typename L::Words x, typename L::Words limit) {
    L::store_less(&masks_[r][i], x, limit);
  }
  typename L::Words counts(int r) const {
    typename L::Words sum = L::count_masks(masks_[r]);
    for (int i = kTogether; i < kNfma; i += kTogether) {
      sum = L::add_bytes(sum, L::count_masks(masks_[r] + i));
    }
    return sum;
  }

 private:
  alignas(64) typename L::Mask masks_[kRows][kNfma];
};

}  // namespace mmaemu::cpu::MMAEMU_TARGET
