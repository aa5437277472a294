#include "allocator/stream/capture_order.h"

#include <algorithm>
#include <utility>

namespace gapless {

void CaptureOrder::note_made(BlockId block, const DeviceStream& stream) {
  CapturePoint point;
  made_in_.erase(block);
  if (driver_.stream_capture_point(stream.device, stream.handle, point) == DriverStatus::ok) {
    made_in_[block] = point.capture;
  }
}

void CaptureOrder::note_free(BlockId block, Owner owner, Epoch epoch,
                             std::span<const DeviceStream> streams) {
  const auto made = made_in_.extract(block);
  Mark mark{epoch, made.empty() ? 0 : made.mapped(), {}};
  bool known = mark.capture != 0;
  for (const DeviceStream& stream : streams) {
    CapturePoint point;
    known = known &&
            driver_.stream_capture_point(stream.device, stream.handle, point) == DriverStatus::ok &&
            point.capture == mark.capture;
    mark.nodes.insert(mark.nodes.end(), point.ends.begin(), point.ends.end());
  }
  if (!known) {
    unknown_.insert(owner);
    return;
  }
  std::vector<Mark>& marks = marks_[owner];
  if (!marks.empty() && marks.back().capture == mark.capture && marks.back().nodes == mark.nodes) {
    marks.back().epoch = epoch;  // nothing was captured in between
  } else {
    marks.push_back(std::move(mark));
  }
}

const std::vector<std::uint64_t>* CaptureOrder::dependencies(DeviceIndex device,
                                                             std::uint64_t node) {
  const auto [found, is_new] = dependencies_.try_emplace(node);
  if (is_new && driver_.graph_node_dependencies(device, node, found->second) != DriverStatus::ok) {
    dependencies_.erase(found);
    return nullptr;
  }
  return &found->second;
}

bool CaptureOrder::find_ancestors(DeviceIndex device, const CapturePoint& point) {
  if (point == last_point_) return true;
  if (point.capture != last_point_.capture) dependencies_.clear();
  last_point_ = {};
  ancestors_.clear();
  std::vector<std::uint64_t> next = point.ends;
  while (!next.empty()) {
    const std::uint64_t node = next.back();
    next.pop_back();
    if (!ancestors_.insert(node).second) continue;
    const std::vector<std::uint64_t>* const earlier = dependencies(device, node);
    if (earlier == nullptr) return false;
    next.insert(next.end(), earlier->begin(), earlier->end());
  }
  last_point_ = point;
  return true;
}

Epoch CaptureOrder::before(const DeviceStream& user, Owner freed_by) {
  const auto found = marks_.find(freed_by);
  if (found == marks_.end() || unknown_.contains(freed_by)) return 0;
  CapturePoint point;
  if (driver_.stream_capture_point(user.device, user.handle, point) != DriverStatus::ok ||
      point.capture == 0 || !find_ancestors(user.device, point)) {
    return 0;
  }
  // A stream's later marks come after its earlier ones; the last that is reached says it all.
  Epoch epoch = 0;
  for (const Mark& mark : found->second) {
    const bool reached = mark.capture == point.capture &&
                         std::all_of(mark.nodes.begin(), mark.nodes.end(),
                                     [&](std::uint64_t node) { return ancestors_.contains(node); });
    if (!reached && mark.capture == point.capture) break;
    if (reached) epoch = mark.epoch;
  }
  return epoch;
}

void CaptureOrder::forget() {
  marks_.clear();
  made_in_.clear();
  unknown_.clear();
  dependencies_.clear();
  last_point_ = {};
  ancestors_.clear();
}

}  // namespace gapless
