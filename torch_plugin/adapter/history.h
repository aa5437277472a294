// History: what torch.cuda.memory._record_memory_history() asks for: a trace of what happened, and
// where each live block was allocated.
//
//   record(True, gather, 1000 entries)      alloc 0x7f.. 512 B   [stack]
//                                           free_requested 0x7f..
//                                           free_completed 0x7f..  ...   the last 1000
//   trackers (NCCL's registration hook)     called with each entry, as it happens
//
// While anything is recorded or tracked, a device's requests go one at a time through watch(), so
// that the entries are in the order in which memory was had. Otherwise the cost is one load.
// Contexts hold Python objects: they are gathered before any lock is taken.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "allocator/device/device_allocator.h"
#include "torch_plugin/adapter/torch_types.h"

namespace gapless::torch_plugin {

using Annotations = std::vector<std::pair<std::string, std::string>>;

/// The calling thread's own words, which go with each entry.
struct ThreadNotes {
  std::vector<std::string> compile_contexts;
  std::string user_metadata;
};
ThreadNotes& thread_notes();

class History {
 public:
  explicit History(DeviceIndex devices);

  /// As CUDAAllocator::recordHistory; throws c10::Error for an action there is not.
  void configure(bool enabled, torch_cuda::CreateContextFn gatherer, std::size_t most_entries,
                 torch_cuda::RecordContext when, bool clear,
                 const std::vector<std::string>& skip_actions);
  void add_tracker(torch_cuda::AllocatorTraceTracker tracker);
  [[nodiscard]] bool enabled() const { return enabled_.load(std::memory_order_relaxed); }

  /// Whether requests must go through watch().
  [[nodiscard]] bool watching() const { return watching_.load(std::memory_order_relaxed); }
  /// They must from now on, whether anything is recorded or not.
  void watch_always() {
    const std::scoped_lock lock(mutex_);
    always_ = true;
    update_watching();
  }
  /// One request of a device at a time; recursive, for a failing request calls others.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> watch(DeviceIndex device) {
    return std::unique_lock(of(device).mutex);
  }
  /// The place in the program, where contexts of that level are recorded. Without a lock.
  [[nodiscard]] Context gather(torch_cuda::RecordContext level) const;

  /// An entry; the device is watched.
  struct Event {
    TraceEntry::Action action{};
    std::size_t address = 0;
    std::size_t bytes = 0;
    void* stream = nullptr;
    MempoolId_t pool{};
    Context context;
  };
  void record(DeviceIndex device, Event event);
  /// The same, where the thread's notes are not what belongs to it.
  void record(DeviceIndex device, Event event, const std::string& metadata);
  /// Memory came to an address or left it; the core's lock is held.
  void record_mapping(DeviceIndex device, const MappingChange& change);
  void record_annotations(DeviceIndex device, const Annotations& annotations);

  /// Memory that comes and goes belongs to that place in the program for now.
  void set_cause(DeviceIndex device, Context context) { of(device).cause = std::move(context); }
  [[nodiscard]] Context cause(DeviceIndex device) { return of(device).cause; }

  /// Where a live block was allocated, kept until it is freed.
  void keep_context(DeviceIndex device, const void* block, Context context);
  Context take_context(DeviceIndex device, const void* block);
  [[nodiscard]] Context context_of(DeviceIndex device, const void* block);

  /// All entries, with times in microseconds of the wall clock, by device.
  [[nodiscard]] std::vector<std::vector<TraceEntry>> entries();
  [[nodiscard]] std::vector<c10::CachingDeviceAllocator::AnnotationEntry> annotations();

 private:
  struct OfDevice {
    std::recursive_mutex mutex;
    std::deque<TraceEntry> entries;
    std::unordered_map<const void*, Context> contexts;
    Context cause;
  };
  [[nodiscard]] OfDevice& of(DeviceIndex device) {
    return devices_[static_cast<std::size_t>(device)];
  }
  void update_watching();

  std::deque<OfDevice> devices_;
  std::atomic<bool> enabled_{false};
  std::atomic<bool> watching_{false};
  std::atomic<torch_cuda::RecordContext> level_{torch_cuda::RecordContext::NEVER};
  std::atomic<torch_cuda::CreateContextFn> gather_{nullptr};
  std::atomic<std::size_t> kept_contexts_{0};

  std::mutex mutex_;  // of what follows
  bool always_ = false;
  std::size_t most_entries_ = 1;
  std::set<TraceEntry::Action> skipped_;
  std::vector<torch_cuda::AllocatorTraceTracker> trackers_;
  std::deque<c10::CachingDeviceAllocator::AnnotationEntry> annotations_;
  c10::ApproximateClockToUnixTimeConverter clock_;
};

}  // namespace gapless::torch_plugin
