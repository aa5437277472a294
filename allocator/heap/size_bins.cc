#include "allocator/heap/size_bins.h"

#include <stdexcept>
#include <string>

namespace gapless {
void SizeBins::insert_in_order(BlockId hole) {
  refile_late();  // a list in order must be in order
  const Block& block = blocks_[hole];
  BlockId before_it = 0;
  BlockId after_it = heads_[bin_of(block.size)];
  while (after_it != 0 && before(blocks_[after_it], block)) {
    before_it = after_it;
    after_it = blocks_[after_it].link_next;
  }
  link(hole, before_it, after_it);
}

void SizeBins::refile(BlockId hole) {
  late_ = 0;
  const std::uint32_t bin = bin_of(late_size_);
  const Block& block = blocks_[hole];
  const bool alone = block.link_prev == 0 && block.link_next == 0;
  if (bin == bin_of(block.size) && (block.size < kSmall || alone)) return;
  unlink(hole, bin);
  insert(hole);
}

BlockId SizeBins::first_fit(BlockId from, Unit size) const {
  BlockId id = from;
  while (id != 0 && blocks_[id].size < size) id = blocks_[id].link_next;
  return id;
}

BlockId SizeBins::after(BlockId hole) {
  refile_late();
  const Block& block = blocks_[hole];
  if (block.link_next != 0) return block.link_next;
  const std::uint32_t bin = next_bin(bin_of(block.size) + 1);
  return bin < kBins ? heads_[bin] : 0;
}

BlockId SizeBins::largest() {
  refile_late();
  if (summary_ == 0) return 0;
  const auto word = static_cast<std::uint32_t>(std::bit_width(summary_)) - 1;
  const auto bin = word * 64 + static_cast<std::uint32_t>(std::bit_width(words_[word])) - 1;
  BlockId largest = heads_[bin];
  for (BlockId id = largest; id != 0; id = blocks_[id].link_next) {
    if (blocks_[id].size > blocks_[largest].size) largest = id;
  }
  return largest;
}

void SizeBins::validate() {
  refile_late();
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
