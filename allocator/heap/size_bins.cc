#include "allocator/heap/size_bins.h"

#include <stdexcept>
#include <string>

namespace gapless {
std::uint32_t SizeBins::next_bin(std::uint32_t from) const {
  if (from >= kBins) return kBins;
  const std::uint32_t word = from >> 6;
  const std::uint64_t here = words_[word] & (~std::uint64_t{0} << (from & 63));
  if (here != 0) return word * 64 + static_cast<std::uint32_t>(std::countr_zero(here));
  const std::uint64_t later = word == 63 ? 0 : summary_ & (~std::uint64_t{0} << (word + 1));
  if (later == 0) return kBins;
  const auto found = static_cast<std::uint32_t>(std::countr_zero(later));
  return found * 64 + static_cast<std::uint32_t>(std::countr_zero(words_[found]));
}

void SizeBins::insert(BlockId hole) {
  Block& block = blocks_[hole];
  const std::uint32_t bin = bin_of(block.size);
  BlockId before_it = 0;
  BlockId after_it = heads_[bin];
  if (block.size >= kSmall) {
    while (after_it != 0 && before(blocks_[after_it], block)) {
      before_it = after_it;
      after_it = blocks_[after_it].link_next;
    }
  }
  block.link_prev = before_it;
  block.link_next = after_it;
  if (before_it != 0) {
    blocks_[before_it].link_next = hole;
  } else {
    heads_[bin] = hole;
    words_[bin >> 6] |= std::uint64_t{1} << (bin & 63);
    summary_ |= std::uint64_t{1} << (bin >> 6);
  }
  if (after_it != 0) blocks_[after_it].link_prev = hole;
  ++count_;
}

void SizeBins::remove(BlockId hole) {
  Block& block = blocks_[hole];
  if (block.link_next != 0) blocks_[block.link_next].link_prev = block.link_prev;
  if (block.link_prev != 0) {
    blocks_[block.link_prev].link_next = block.link_next;
  } else {
    const std::uint32_t bin = bin_of(block.size);
    heads_[bin] = block.link_next;
    if (block.link_next == 0) {
      words_[bin >> 6] &= ~(std::uint64_t{1} << (bin & 63));
      if (words_[bin >> 6] == 0) summary_ &= ~(std::uint64_t{1} << (bin >> 6));
    }
  }
  block.link_prev = 0;
  block.link_next = 0;
  --count_;
}

BlockId SizeBins::best_fit(Unit size) const {
  const std::uint32_t bin = bin_of(size);
  // In the request's own bin holes may be too small: the first that is not is taken. Among small
  // ones the search is short, unless no larger bin holds anything.
  if (size > smallest_of_bin(bin)) {
    constexpr int kSmallSteps = 16;
    BlockId id = heads_[bin];
    for (int steps = size < kSmall ? kSmallSteps : INT32_MAX; id != 0 && steps > 0; --steps) {
      if (blocks_[id].size >= size) return id;
      id = blocks_[id].link_next;
    }
    const std::uint32_t larger = next_bin(bin + 1);
    if (larger < kBins) return heads_[larger];
    for (; id != 0; id = blocks_[id].link_next) {  // the last resort: the rest of the own bin
      if (blocks_[id].size >= size) return id;
    }
    return 0;
  }
  const std::uint32_t found = next_bin(bin);
  return found < kBins ? heads_[found] : 0;
}

BlockId SizeBins::after(BlockId hole) const {
  const Block& block = blocks_[hole];
  if (block.link_next != 0) return block.link_next;
  const std::uint32_t bin = next_bin(bin_of(block.size) + 1);
  return bin < kBins ? heads_[bin] : 0;
}

Unit SizeBins::largest() const {
  if (summary_ == 0) return 0;
  const auto word = static_cast<std::uint32_t>(std::bit_width(summary_)) - 1;
  const auto bin = word * 64 + static_cast<std::uint32_t>(std::bit_width(words_[word])) - 1;
  Unit largest = 0;
  for (BlockId id = heads_[bin]; id != 0; id = blocks_[id].link_next) {
    largest = std::max(largest, blocks_[id].size);
  }
  return largest;
}

void SizeBins::validate() const {
  std::uint32_t seen = 0;
  for (std::uint32_t bin = 0; bin < kBins; ++bin) {
    const bool bit = ((words_[bin >> 6] >> (bin & 63)) & 1) != 0;
    if (bit != (heads_[bin] != 0)) throw std::logic_error("size bins: bitmap and list disagree");
    BlockId before_it = 0;
    for (BlockId id = heads_[bin]; id != 0; id = blocks_[id].link_next) {
      const Block& block = blocks_[id];
      if (bin_of(block.size) != bin) throw std::logic_error("size bins: a hole in another's bin");
      if (block.link_prev != before_it) throw std::logic_error("size bins: a broken list");
      if (block.state != BlockState::hole) throw std::logic_error("size bins: not a hole");
      if (before_it != 0 && block.size >= kSmall && before(block, blocks_[before_it])) {
        throw std::logic_error("size bins: out of order");
      }
      before_it = id;
      ++seen;
    }
  }
  for (std::uint32_t word = 0; word < kWords; ++word) {
    if ((((summary_ >> word) & 1) != 0) != (words_[word] != 0)) {
      throw std::logic_error("size bins: summary and bitmap disagree");
    }
  }
  if (seen != count_) throw std::logic_error("size bins: the count is wrong");
}

}  // namespace gapless
