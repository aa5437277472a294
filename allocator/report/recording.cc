#include "allocator/report/recording.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>

#include "allocator/base/byte_source.h"
#include "allocator/base/error.h"
#include "allocator/trace/load.h"
#include "allocator/trace/pickle.h"

namespace gapless {

Recording open_recording(const std::string& path) {
  std::unique_ptr<ByteSource> source = open_bytes(path);
  const std::string_view first = first_bytes(*source);
  Recording recording;
  if (first.starts_with('{')) {
    recording.now = read_dump(source->take_all(), path);
    recording.now->name = std::filesystem::path(path).stem().string();
  } else if (looks_like_pickle(first)) {
    Snapshot snapshot = snapshot_of(std::move(source), path);
    recording.traces = std::move(snapshot.traces);
    recording.now = state_of(std::move(snapshot));
  } else {
    recording.traces = traces_of(std::move(source), path);
  }
  std::erase_if(recording.traces, [](const Trace& trace) { return trace.events.empty(); });
  if (recording.traces.empty() && !recording.now) throw InputError(path + ": holds no events");
  return recording;
}

MemoryState of_device(const MemoryState& state, DeviceIndex device) {
  MemoryState one;
  one.name = state.name;
  one.source = state.source;
  std::copy_if(state.segments.begin(), state.segments.end(), std::back_inserter(one.segments),
               [&](const StateSegment& segment) { return segment.device == device; });
  one.joinable_free_bytes = state.joinable_free_bytes;
  one.page_bytes = state.page_bytes;
  one.windows = state.windows;
  return one;
}

}  // namespace gapless
