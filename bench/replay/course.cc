#include "bench/replay/course.h"

#include <algorithm>
#include <utility>

#include "allocator/base/bytes.h"

namespace gapless::bench {

std::size_t course_columns(std::size_t events) { return std::min(events, kMostCourseColumns); }

CourseTaker::CourseTaker(const Trace& trace, const Peer& peer)
    : trace_(trace), peer_(peer), sizes_(trace.blocks, 0) {}

bool CourseTaker::begin_pass() {
  if (passes_.size() == kMostCoursePasses) return false;
  std::fill(sizes_.begin(), sizes_.end(), 0);  // what the pass before had left was freed
  now_ = {0, peer_.reserved_bytes()};
  peak_reserved_bytes_ = peer_.peak_reserved_bytes();
  passes_.emplace_back();
  return true;
}

void CourseTaker::reach(std::size_t event) {
  PassCourse& course = passes_.back();
  const std::size_t events = trace_.events.size();
  const std::size_t column = event * course_columns(events) / events;
  while (course.size() <= column) course.push_back(now_);
}

void CourseTaker::played(std::size_t event) {
  const TraceEvent& played = trace_.events[event];
  reach(event);
  if (played.kind == EventKind::alloc) {
    sizes_[played.block] = align_up(played.bytes, kBlockGrain);
    now_.allocated_bytes += sizes_[played.block];
  } else {
    now_.allocated_bytes -= std::exchange(sizes_[played.block], 0);
  }
  now_.reserved_bytes = peer_.reserved_bytes();
  CourseColumn& most = passes_.back().back();
  most.allocated_bytes = std::max(most.allocated_bytes, now_.allocated_bytes);
  most.reserved_bytes = std::max(most.reserved_bytes, now_.reserved_bytes);
  // More may have been reserved on the way than is at its end.
  const std::uint64_t peak = peer_.peak_reserved_bytes();
  if (peak > std::exchange(peak_reserved_bytes_, peak)) {
    most.reserved_bytes = std::max(most.reserved_bytes, peak);
  }
}

void CourseTaker::end_pass(std::size_t event) {
  if (event < trace_.events.size()) {
    reach(event);
  } else if (event != 0) {
    reach(event - 1);
  }
}

}  // namespace gapless::bench
