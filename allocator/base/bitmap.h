// A set of small integers as bits, with the searches a page table needs.
//
//   index   0 1 2 3 4 5 6 7
//   bits    0 1 1 0 1 1 1 0      count() = 5
//                                 find_set(3) = 4, find_clear(4) = 7, run_begin(6) = 4
//
// Ranges are set, cleared and searched a 64-bit word at a time. Not thread-safe.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace gapless {

class Bitmap {
 public:
  static constexpr std::uint32_t npos = UINT32_MAX;

  Bitmap() = default;
  explicit Bitmap(std::uint32_t size) { resize(size); }

  /// Grows or shrinks to `size` bits; new bits are clear.
  void resize(std::uint32_t size);

  [[nodiscard]] std::uint32_t size() const { return size_; }
  /// How many bits are set. O(1).
  [[nodiscard]] std::uint32_t count() const { return count_; }
  [[nodiscard]] bool test(std::uint32_t index) const {
    return ((words_[index >> 6] >> (index & 63)) & 1) != 0;
  }

  void set(std::uint32_t index) { set_range(index, index + 1); }
  void clear(std::uint32_t index) { clear_range(index, index + 1); }
  /// Sets or clears [begin, end); bits that already are as wanted stay so.
  void set_range(std::uint32_t begin, std::uint32_t end);
  void clear_range(std::uint32_t begin, std::uint32_t end);

  /// Sets what is set in `other` too, which has the same size.
  void add(const Bitmap& other);

  /// How many of [begin, end) are set.
  [[nodiscard]] std::uint32_t count_in(std::uint32_t begin, std::uint32_t end) const;
  /// The first set (clear) bit at or after `from`; npos where there is none (size() for clear).
  [[nodiscard]] std::uint32_t find_set(std::uint32_t from) const;
  [[nodiscard]] std::uint32_t find_clear(std::uint32_t from) const;
  /// The first bit of the run of set bits that `index` (a set bit) stands in.
  [[nodiscard]] std::uint32_t run_begin(std::uint32_t index) const;

  /// The 64 bits from 64 * word on.
  [[nodiscard]] std::uint64_t word(std::uint32_t word) const { return words_[word]; }
  [[nodiscard]] std::uint32_t words() const { return static_cast<std::uint32_t>(words_.size()); }

 private:
  std::vector<std::uint64_t> words_;
  std::uint32_t size_ = 0;
  std::uint32_t count_ = 0;
};

}  // namespace gapless
