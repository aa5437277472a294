#include "allocator/trace/unserved_requests.h"

#include <algorithm>
#include <utility>

#include "allocator/base/bytes.h"

namespace gapless {
namespace {

// live + bytes, rounded up; a program may ask for any number of bytes.
std::uint64_t needs(std::uint64_t live, std::uint64_t bytes) {
  const std::uint64_t most = align_down(UINT64_MAX - live, kBlockGrain);
  return live + (bytes > most ? most : align_up(bytes, kBlockGrain));
}

bool needs_less(const UnservedRequest& a, const UnservedRequest& b) {
  return a.needs_bytes < b.needs_bytes;
}

}  // namespace

std::optional<UnservedRequest> UnservedRequests::last_straw() const {
  if (!ended()) return {};
  return *std::min_element(all.end() - static_cast<std::ptrdiff_t>(unanswered), all.end(),
                           needs_less);
}

std::optional<UnservedRequest> UnservedRequests::most_missed() const {
  const auto end = all.end() - static_cast<std::ptrdiff_t>(unanswered);
  if (all.begin() == end) return {};
  return *std::max_element(all.begin(), end, needs_less);
}

UnservedRequests unserved_requests(const Trace& trace) {
  UnservedRequests failed;
  std::vector<std::uint64_t> size(trace.blocks, 0);
  std::uint64_t live = 0;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    if (event.kind == EventKind::alloc) {
      live += size[event.block] = align_up(event.bytes, kBlockGrain);
      failed.unanswered = 0;
    } else if (event.kind == EventKind::free) {
      live -= std::exchange(size[event.block], 0);
    } else if (event.kind == EventKind::oom) {
      failed.all.push_back({i, event.bytes, live, needs(live, event.bytes)});
      ++failed.unanswered;
    }
  }
  return failed;
}

Trace with_request_served(Trace trace, const UnservedRequest& request) {
  TraceEvent& event = trace.events[request.event];
  event.kind = EventKind::alloc;
  event.address = 0;
  event.block = trace.blocks++;
  return trace;
}

}  // namespace gapless
