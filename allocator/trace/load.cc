#include "allocator/trace/load.h"

#include <utility>

#include "allocator/base/error.h"
#include "allocator/trace/compact_format.h"
#include "allocator/trace/minimalloc.h"
#include "allocator/trace/pickle.h"
#include "allocator/trace/rmm_log.h"
#include "allocator/trace/streamed_format.h"

namespace gapless {
namespace {

Trace with_events(Trace trace, const std::string& path) {
  if (trace.events.empty()) throw InputError(path + ": holds no events, only names of columns");
  return trace;
}

std::vector<Trace> read_traces(std::unique_ptr<ByteSource> source, const std::string& path,
                               bool still_devices) {
  std::vector<Trace> traces;
  if (looks_like_pickle(first_bytes(*source))) {
    traces = snapshot_of(std::move(source), path, still_devices).traces;
  } else {
    std::string bytes = source->take_all();
    if (looks_like_compact(bytes)) {
      traces = read_compact(bytes, path);
    } else if (looks_like_streamed(bytes)) {
      traces = read_streamed(bytes, path);
    } else if (looks_like_rmm_log(bytes)) {
      traces.push_back(with_events(read_rmm_log(bytes, path), path));
    } else if (looks_like_minimalloc(bytes)) {
      traces.push_back(with_events(read_minimalloc(bytes, path), path));
    } else {
      traces = snapshot_of(bytes_in_memory(std::move(bytes)), path, still_devices).traces;
    }
  }
  if (traces.empty()) {
    throw InputError(path +
                     ": holds no events; record them with "
                     "torch.cuda.memory._record_memory_history() (gapless inspect shows what is "
                     "there)");
  }
  return traces;
}

}  // namespace

std::string_view first_bytes(ByteSource& source) {
  source.rewind();
  return source.next();
}

Snapshot load_snapshot(const std::string& path) { return snapshot_of(open_bytes(path), path); }

Snapshot snapshot_of(std::string bytes, const std::string& path, bool still_devices) {
  return snapshot_of(bytes_in_memory(std::move(bytes)), path, still_devices);
}

Snapshot snapshot_of(std::unique_ptr<ByteSource> source, const std::string& path,
                     bool still_devices) {
  if (source->size() == 0) throw InputError(path + ": is empty");
  if (!looks_like_pickle(first_bytes(*source))) {
    throw InputError(path, "byte 0",
                     "neither a gapless file nor a PyTorch memory snapshot (pickle, protocol 2 "
                     "to 5), nor the first line of a log of RMM or a CSV of minimalloc");
  }
  const PickleDocument document(std::move(source), path, std::string(kDeviceTraces));
  Snapshot snapshot = read_snapshot(document, still_devices);
  for (const Trace& trace : snapshot.traces) {
    const std::uint64_t checking = trace.blocks * sizeof(std::uint64_t);
    document.budget().hold(checking, "events");
    check_trace(trace, path + ": gpu " + std::to_string(trace.device));
    document.budget().give_back(checking);
  }
  return snapshot;
}

std::vector<Trace> load_traces(const std::string& path) {
  return read_traces(open_bytes(path), path, false);
}

std::vector<Trace> traces_of(std::string bytes, const std::string& path) {
  return traces_of(bytes_in_memory(std::move(bytes)), path);
}

std::vector<Trace> traces_of(std::unique_ptr<ByteSource> source, const std::string& path) {
  return read_traces(std::move(source), path, false);
}

std::vector<Trace> load_recording(const std::string& path) {
  return read_traces(open_bytes(path), path, true);
}

}  // namespace gapless
