#include "allocator/trace/going_back.h"

#include <algorithm>
#include <iterator>

namespace gapless {

void GoingBack::add(Range segment, std::uint64_t stream) {
  if (segment.bytes == 0) return;
  segments_[segment.address] = {segment.address + segment.bytes, stream};
}

std::vector<GoingBack::Range> GoingBack::undo_map(Range mapped) {
  std::vector<Range> pieces = cut_out(mapped);
  std::uint64_t bytes = 0;
  for (const Range& piece : pieces) bytes += piece.bytes;
  return bytes == mapped.bytes && !pieces.empty() ? pieces : std::vector<Range>{mapped};
}

std::vector<GoingBack::Range> GoingBack::cut_out(Range range) {
  std::vector<Range> pieces;
  const std::uint64_t end = range.address + range.bytes;
  auto at = segments_.upper_bound(range.address);
  if (at != segments_.begin() && std::prev(at)->second.end > range.address) --at;
  while (at != segments_.end() && at->first < end) {
    const auto [begin, segment] = *at;
    const std::uint64_t first = std::max(begin, range.address);
    const std::uint64_t last = std::min(segment.end, end);
    pieces.push_back({first, last - first});
    at = segments_.erase(at);
    if (begin < first) segments_[begin] = {first, segment.stream};
    if (last < segment.end) segments_[last] = segment;
  }
  return pieces;
}

void GoingBack::undo_unmap(Range unmapped, std::uint64_t stream) {
  (void)cut_out(unmapped);  // what contradicts it
  if (unmapped.bytes == 0) return;
  std::uint64_t begin = unmapped.address;
  std::uint64_t end = begin + unmapped.bytes;
  const auto after = segments_.find(end);
  if (after != segments_.end() && after->second.stream == stream) {
    end = after->second.end;
    segments_.erase(after);
  }
  if (auto before = segments_.lower_bound(begin); before != segments_.begin()) {
    --before;
    if (before->second.end == begin && before->second.stream == stream) {
      begin = before->first;
      segments_.erase(before);
    }
  }
  segments_[begin] = {end, stream};
}

}  // namespace gapless
