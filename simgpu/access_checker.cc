#include "simgpu/access_checker.h"

#include <algorithm>

#include <fmt/format.h>

namespace gapless::simgpu {

void AccessChecker::split_at(Pieces& pieces, std::uint64_t offset) {
  auto after = pieces.upper_bound(offset);
  if (after == pieces.begin()) return;
  const auto piece = std::prev(after);
  if (piece->first == offset || piece->second.end <= offset) return;
  Piece upper = piece->second;
  piece->second.end = offset;
  pieces[offset] = std::move(upper);
}

std::string AccessChecker::access(const PhysicalRange& range, DeviceAddress address,
                                  const Stamp& stamp, bool writes) {
  Pieces& pieces = by_handle_[range.handle];
  const std::uint64_t end = range.offset + range.bytes;
  split_at(pieces, range.offset);
  split_at(pieces, end);
  std::string wrong;
  std::uint64_t at = range.offset;
  while (at < end) {
    auto piece = pieces.lower_bound(at);
    if (piece == pieces.end() || piece->first > at) {  // never touched so far
      const std::uint64_t stop = piece == pieces.end() ? end : std::min(end, piece->first);
      pieces[at] = {stop, {{stamp, writes}}};
      at = stop;
      continue;
    }
    std::vector<Use>& uses = piece->second.uses;
    for (const Use& use : uses) {
      if ((use.writes || writes) && !timeline_.ordered_before(use.stamp, stamp.stream) &&
          wrong.empty()) {
        wrong = fmt::format(
            "use before event: stream {} touches {:#x} (handle {}, offset {}) while work {} of "
            "stream {} may still run on it",
            stamp.stream, address, range.handle, at, use.stamp.number, use.stamp.stream);
      }
    }
    std::erase_if(uses, [&](const Use& use) {
      return (writes || !use.writes) && timeline_.ordered_before(use.stamp, stamp.stream);
    });
    uses.push_back({stamp, writes});
    at = piece->second.end;
  }
  return wrong;
}

void AccessChecker::touch_mapping(DeviceAddress mapping, const Stamp& stamp) {
  std::vector<Stamp>& stamps = by_mapping_[mapping];
  for (Stamp& known : stamps) {
    if (known.stream == stamp.stream) {
      known.number = std::max(known.number, stamp.number);
      return;
    }
  }
  stamps.push_back(stamp);
}

bool AccessChecker::in_flight(DeviceAddress mapping) const {
  const auto found = by_mapping_.find(mapping);
  if (found == by_mapping_.end()) return false;
  return std::any_of(found->second.begin(), found->second.end(),
                     [&](const Stamp& stamp) { return !timeline_.host_knows(stamp); });
}

}  // namespace gapless::simgpu
