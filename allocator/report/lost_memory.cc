#include "allocator/report/lost_memory.h"

#include <algorithm>
#include <map>

#include "allocator/base/bytes.h"
#include "allocator/report/moment.h"

namespace gapless {
namespace {

// PyTorch splits nothing off a block of the large pool that is not larger than this.
constexpr std::uint64_t kNotSplitOff = MiB;
constexpr std::size_t kMostPinned = 10;

bool in_private_pool(const StateSegment& segment) {
  return segment.pool.find('[') != std::string::npos;
}
bool is_small(const StateSegment& segment) { return segment.pool.starts_with("small"); }

// The stream with the most memory, which is nearly always the one that computes.
std::uint64_t main_stream(const MemoryState& state) {
  std::map<std::uint64_t, std::uint64_t> reserved;
  for (const StateSegment& segment : state.segments) {
    if (!in_private_pool(segment)) reserved[segment.stream] += segment.bytes;
  }
  std::uint64_t stream = 0;
  std::uint64_t most = 0;
  for (const auto& [one, bytes] : reserved) {
    if (bytes > most) {
      most = bytes;
      stream = one;
    }
  }
  return stream;
}

class Sorter {
 public:
  explicit Sorter(const MemoryState& state) : stream_(main_stream(state)) {}

  void add(const StateSegment& segment) {
    std::uint64_t free = 0;
    std::uint64_t live = 0;
    const StateBlock* largest = nullptr;
    for (const StateBlock& block : segment.blocks) {
      if (block.kind == StateBlock::Kind::free) {
        free += block.bytes;
        continue;
      }
      ++live;
      add_rest(segment, block);
      if (largest == nullptr || block.bytes > largest->bytes) largest = &block;
    }
    lost_.free_bytes += free;
    // Free pages of an expandable segment can be given back, whatever else is live in it.
    const bool mostly_free = !segment.expandable && free >= segment.bytes / 4 * 3;
    for (std::size_t i = 0; i < segment.blocks.size(); ++i) {
      const StateBlock& block = segment.blocks[i];
      if (block.kind != StateBlock::Kind::free || block.bytes == 0) continue;
      const StateBlock* before = i == 0 ? nullptr : &segment.blocks[i - 1];
      const Loss loss = loss_of(segment, block, before, live, mostly_free);
      LostMemory::Part& part = lost_.parts[static_cast<std::size_t>(loss)];
      part.bytes += block.bytes;
      ++part.pieces;
      if (loss == Loss::behind_blocks) behind_[before->requested_bytes] += block.bytes;
    }
    if (live != 0 && mostly_free && !is_small(segment) && free != 0) {
      lost_.pinned.push_back(
          {segment.address, segment.bytes, free, segment.device, live, *largest});
    }
  }

  LostMemory take() {
    std::stable_sort(
        lost_.pinned.begin(), lost_.pinned.end(),
        [](const PinnedSegment& a, const PinnedSegment& b) { return a.free_bytes > b.free_bytes; });
    if (lost_.pinned.size() > kMostPinned) lost_.pinned.resize(kMostPinned);
    // The middle four fifths of it.
    const std::uint64_t all = lost_.part(Loss::behind_blocks).bytes;
    std::uint64_t before = 0;
    for (const auto& [asked, bytes] : behind_) {
      if (before <= all / 10) lost_.behind_from_bytes = asked;
      if (before <= all - all / 10) lost_.behind_to_bytes = asked;
      before += bytes;
    }
    return std::move(lost_);
  }

 private:
  // What was left with a block, where the file tells its real size.
  void add_rest(const StateSegment& segment, const StateBlock& block) {
    if (!segment.pool.starts_with("large") || segment.expandable) return;
    const std::uint64_t asked = std::min(block.bytes, rounded_bytes(block.requested_bytes));
    const std::uint64_t rest = block.bytes - asked;
    if (rest == 0 || rest > kNotSplitOff) return;
    LostMemory::Part& part = lost_.parts[static_cast<std::size_t>(Loss::behind_blocks)];
    part.bytes += rest;
    ++part.pieces;
    lost_.free_bytes += rest;
    behind_[block.requested_bytes] += rest;
  }

  [[nodiscard]] Loss loss_of(const StateSegment& segment, const StateBlock& block,
                             const StateBlock* before, std::uint64_t live, bool mostly_free) const {
    if (in_private_pool(segment)) return Loss::private_pools;
    if (segment.stream != stream_) return Loss::other_streams;
    if (is_small(segment)) return Loss::small_pool;
    if (live == 0) return Loss::whole_segments;
    if (block.bytes <= kNotSplitOff && before != nullptr && !segment.expandable) {
      return Loss::behind_blocks;
    }
    return mostly_free ? Loss::pinned : Loss::holes;
  }

  std::uint64_t stream_;
  LostMemory lost_;
  std::map<std::uint64_t, std::uint64_t> behind_;  // bytes, by what the block before asked for
};

}  // namespace

const char* to_string(Loss loss) {
  switch (loss) {
    case Loss::private_pools:
      return "private pools";
    case Loss::other_streams:
      return "other streams";
    case Loss::small_pool:
      return "small pool";
    case Loss::whole_segments:
      return "whole segments";
    case Loss::behind_blocks:
      return "behind blocks";
    case Loss::pinned:
      return "pinned segments";
    case Loss::holes:
      return "holes";
  }
  return "?";
}

LostMemory lost_memory(const MemoryState& state) {
  Sorter sorter(state);
  for (const StateSegment& segment : state.segments) sorter.add(segment);
  return sorter.take();
}

}  // namespace gapless
