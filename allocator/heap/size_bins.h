// Size bins: the holes of the heap by size, for best fit in a few instructions.
//
//   units   1  2 ... 32 | 33 34 ... 64 | 65-66 67-68 ... | 129-132 ...
//   bin     0  1     31 | 32 33     63 | 64    65    ... | 96      ...
//
// Sizes up to 64 units have a bin each; above, every octave is cut into 32 bins, so the sizes in
// one bin differ by 1/32 at most. A two-level bitmap finds the next bin that holds anything. Within
// a bin holes from 1 MiB on are kept by size, then by address: the first that fits is the smallest
// and, among those, the lowest, whatever the order of frees was. That matters: a repeating program
// must meet the same choices again. Smaller holes are taken last in, first out: there may be many
// thousands of one size, and where they lie matters little.
//
// The hole resized last stays in its old bin until anybody looks: a temporary is cut off a hole and
// joined to it again, and then nothing was filed at all.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "allocator/heap/block.h"

namespace gapless {

/// The bin for holes of `size` units; size >= 1.
constexpr std::uint32_t bin_of(Unit size) {
  // The octave, counted from the second whose sizes need more than six bits, and of the size the
  // leading one and the five bits that name one of its 32 bins. No branch: sizes are unpredictable.
  const Unit last = size - 1;
  const auto octave = static_cast<std::uint32_t>(std::bit_width(last | 32)) - 6;
  return (octave << 5) + (last >> octave);
}

/// The smallest size in a bin, in units.
constexpr Unit smallest_of_bin(std::uint32_t bin) {
  if (bin < 64) return bin + 1;
  const std::uint32_t octave = (bin >> 5) - 1;
  return ((32 + (bin & 31)) << octave) + 1;
}

inline constexpr std::uint32_t kBins = bin_of(UINT32_MAX) + 1;

class SizeBins {
 public:
  explicit SizeBins(BlockTable& blocks) : blocks_(blocks) {}

  /// Files a hole (begin and size set).
  void insert(BlockId hole) {
    const Unit size = blocks_[hole].size;
    if (size >= kSmall) {
      insert_in_order(hole);
    } else {
      link(hole, 0, heads_[bin_of(size)]);
    }
  }
  void remove(BlockId hole) {
    Unit size = blocks_[hole].size;
    if (hole == late_) {
      size = late_size_;
      late_ = 0;
    }
    unlink(hole, bin_of(size));
  }
  /// A filed hole changes its extent.
  void resize(BlockId hole, Unit begin, Unit size) {
    Block& block = blocks_[hole];
    if (hole != late_) {
      refile_late();
      late_ = hole;
      late_begin_ = block.begin;
      late_size_ = block.size;
    }
    block.begin = begin;
    block.size = size;
    if (size == late_size_ && begin == late_begin_) late_ = 0;  // as it was filed
  }

  /// The smallest hole of at least `size` units, the lowest of these; 0 where there is none. Below
  /// 1 MiB near enough: the last freed of a bin.
  [[nodiscard]] BlockId best_fit(Unit size) {
    refile_late();
    const std::uint32_t bin = bin_of(size);
    // In the request's own bin holes may be too small. Large ones are in order, so the first that
    // is not is the best; of small ones only the last freed is looked at, as a program asks again
    // and again for the sizes it frees.
    const BlockId head = heads_[bin];
    if (blocks_[head].size >= size) return head;  // record 0 has no size
    if (size >= kSmall) {
      if (const BlockId found = first_fit(head, size); found != 0) return found;
    }
    const std::uint32_t larger = next_bin(bin + 1);
    if (larger < kBins) [[likely]]
      return heads_[larger];
    return first_fit(head, size);  // the last resort: the rest of the own bin
  }

  /// The hole after `hole` in the order of bins (by size, near enough); 0 after the last.
  [[nodiscard]] BlockId after(BlockId hole);

  /// The largest hole, the lowest of these; 0 where there is none.
  [[nodiscard]] BlockId largest();
  [[nodiscard]] std::uint32_t count() const { return count_; }

  /// Calls f(id) for every hole, smallest bin first.
  template <class F>
  void for_each(F&& f) {
    refile_late();
    for (std::uint32_t bin = next_bin(0); bin < kBins; bin = next_bin(bin + 1)) {
      for (BlockId id = heads_[bin]; id != 0;) {
        const BlockId next = blocks_[id].link_next;
        f(id);
        id = next;
      }
    }
  }

  /// Throws std::logic_error saying what is wrong, if anything is.
  void validate();

 private:
  friend struct RuleBreaker;  // of the tests of validate()

  /// Holes below this many units (1 MiB) are not kept in order.
  static constexpr Unit kSmall = 2048;
  static constexpr std::uint32_t kWords = (kBins + 63) / 64;
  static_assert(kWords <= 64);

  /// The first hole of at least `size` units in a list, from `from` on; or 0.
  [[nodiscard]] BlockId first_fit(BlockId from, Unit size) const;
  /// The first bin >= `from` that holds a hole; kBins where there is none.
  [[nodiscard]] std::uint32_t next_bin(std::uint32_t from) const {
    if (from >= kBins) return kBins;
    const std::uint32_t word = from >> 6;
    const std::uint64_t here = words_[word] & (~std::uint64_t{0} << (from & 63));
    if (here != 0) return word * 64 + static_cast<std::uint32_t>(std::countr_zero(here));
    const std::uint64_t later = word == 63 ? 0 : summary_ & (~std::uint64_t{0} << (word + 1));
    if (later == 0) return kBins;
    const auto found = static_cast<std::uint32_t>(std::countr_zero(later));
    return found * 64 + static_cast<std::uint32_t>(std::countr_zero(words_[found]));
  }
  [[nodiscard]] bool before(const Block& a, const Block& b) const {
    return a.size != b.size ? a.size < b.size : a.begin < b.begin;
  }

  /// Puts the hole resized last where it belongs.
  void refile_late() {
    if (late_ != 0) refile(late_);
  }
  [[gnu::noinline]] void refile(BlockId hole);
  [[gnu::noinline]] void insert_in_order(BlockId hole);
  // Record 0 is no block, so it may be written in place of a neighbour that is not there: cheaper
  // than a branch that cannot be predicted.
  void link(BlockId hole, BlockId before_it, BlockId after_it) {
    Block& block = blocks_[hole];
    block.link_prev = before_it;
    block.link_next = after_it;
    blocks_[after_it].link_prev = hole;
    if (before_it != 0) {
      blocks_[before_it].link_next = hole;
    } else {
      const std::uint32_t bin = bin_of(block.size);
      heads_[bin] = hole;
      words_[bin >> 6] |= std::uint64_t{1} << (bin & 63);
      summary_ |= std::uint64_t{1} << (bin >> 6);
    }
    ++count_;
  }
  void unlink(BlockId hole, std::uint32_t bin) {
    Block& block = blocks_[hole];
    const BlockId next = block.link_next;
    blocks_[next].link_prev = block.link_prev;
    if (block.link_prev != 0) {
      blocks_[block.link_prev].link_next = next;
    } else {
      heads_[bin] = next;
      std::uint64_t& word = words_[bin >> 6];
      word = (word & ~(std::uint64_t{1} << (bin & 63))) | std::uint64_t{next != 0} << (bin & 63);
      summary_ = (summary_ & ~(std::uint64_t{1} << (bin >> 6))) | std::uint64_t{word != 0}
                                                                      << (bin >> 6);
    }
    block.link_prev = 0;
    block.link_next = 0;
    --count_;
  }

  BlockTable& blocks_;
  BlockId late_ = 0;  // the hole that is still filed as [late_begin_, late_begin_ + late_size_)
  Unit late_begin_ = 0;
  Unit late_size_ = 0;
  std::array<BlockId, kBins> heads_{};
  std::array<std::uint64_t, kWords> words_{};
  std::uint64_t summary_ = 0;
  std::uint32_t count_ = 0;
};

}  // namespace gapless
