#include "torch_plugin/adapter/history.h"

#include <algorithm>

namespace gapless::torch_plugin {
namespace {

template <class Entry>
void keep_last(std::deque<Entry>& entries, std::size_t most) {
  while (entries.size() > most) entries.pop_front();
}

}  // namespace

ThreadNotes& thread_notes() {
  thread_local ThreadNotes notes;
  return notes;
}

History::History(DeviceIndex devices) : devices_(static_cast<std::size_t>(devices)) {}

void History::configure(bool enabled, torch_cuda::CreateContextFn gatherer,
                        std::size_t most_entries, torch_cuda::RecordContext when, bool clear,
                        const std::vector<std::string>& skip_actions) {
  TORCH_CHECK(when == torch_cuda::RecordContext::NEVER || gatherer != nullptr,
              "recordHistory: there is no function that gathers contexts");
  std::set<TraceEntry::Action> skipped;
  for (const std::string& action : skip_actions) {
    skipped.insert(c10::CachingDeviceAllocator::parseTraceEntryAction(action));
  }
  // Entries that go take references to Python objects with them: after the locks.
  std::vector<std::deque<TraceEntry>> cleared(devices_.size());
  const std::size_t most = std::max<std::size_t>(1, most_entries);
  for (std::size_t device = 0; device < devices_.size(); ++device) {
    const std::scoped_lock lock(devices_[device].mutex, mutex_);
    if (!enabled || clear) cleared[device].swap(devices_[device].entries);
    keep_last(devices_[device].entries, most);
  }
  const std::scoped_lock lock(mutex_);
  if (!enabled || clear) annotations_.clear();
  most_entries_ = most;
  skipped_ = std::move(skipped);
  gather_ = enabled ? gatherer : nullptr;
  level_ = enabled ? when : torch_cuda::RecordContext::NEVER;
  enabled_ = enabled;
  update_watching();
}

void History::add_tracker(torch_cuda::AllocatorTraceTracker tracker) {
  const std::scoped_lock lock(mutex_);
  trackers_.push_back(std::move(tracker));
  update_watching();
}

void History::update_watching() {
  // Blocks whose place is known must be followed until they are freed.
  watching_ = always_ || enabled_ || !trackers_.empty() || kept_contexts_ != 0;
}

Context History::gather(torch_cuda::RecordContext level) const {
  if (level_.load(std::memory_order_relaxed) < level) return nullptr;
  const torch_cuda::CreateContextFn gatherer = gather_.load();
  return gatherer != nullptr ? gatherer() : nullptr;
}

void History::record(DeviceIndex device, Event event) {
  record(device, std::move(event), thread_notes().user_metadata);
}

void History::record(DeviceIndex device, Event event, const std::string& metadata) {
  std::vector<torch_cuda::AllocatorTraceTracker> trackers;
  std::size_t most = 0;
  {
    const std::scoped_lock lock(mutex_);
    if (skipped_.contains(event.action)) return;
    trackers = trackers_;
    most = most_entries_;
  }
  if (!enabled() && trackers.empty()) return;
  const bool with_context = level_.load() >= torch_cuda::RecordContext::ALLOC;
  const auto& compile_contexts = thread_notes().compile_contexts;
  const TraceEntry entry(event.action, static_cast<c10::DeviceIndex>(device), event.address,
                         event.bytes, event.stream, event.pool, c10::getApproximateTime(),
                         with_context ? std::move(event.context) : nullptr,
                         compile_contexts.empty() ? "N/A" : compile_contexts.back(), metadata);
  for (const auto& tracker : trackers) tracker(entry);
  if (!enabled()) return;
  of(device).entries.push_back(entry);
  keep_last(of(device).entries, most);
}

void History::record_mapping(DeviceIndex device, const MappingChange& change) {
  // Requests that are watched come with the lock; one that began before anybody watched is not
  // waited for, since it has the core's lock.
  const std::unique_lock lock(of(device).mutex, std::try_to_lock);
  if (!lock.owns_lock()) return;
  record(device, {change.mapped ? TraceEntry::SEGMENT_MAP : TraceEntry::SEGMENT_UNMAP,
                  change.address,
                  change.bytes,
                  nullptr,
                  {},
                  of(device).cause});
}

void History::record_annotations(DeviceIndex device, const Annotations& annotations) {
  if (!enabled()) return;
  c10::CachingDeviceAllocator::AnnotationEntry entry(static_cast<c10::DeviceIndex>(device),
                                                     c10::getApproximateTime());
  for (const auto& [name, value] : annotations) entry.recordUserMetadata(name, value);
  const std::scoped_lock lock(mutex_);
  annotations_.push_back(std::move(entry));
  keep_last(annotations_, most_entries_);
}

void History::keep_context(DeviceIndex device, const void* block, Context context) {
  if (context == nullptr) return;
  if (of(device).contexts.insert_or_assign(block, std::move(context)).second) ++kept_contexts_;
}

Context History::take_context(DeviceIndex device, const void* block) {
  auto& contexts = of(device).contexts;
  const auto found = contexts.find(block);
  if (found == contexts.end()) return nullptr;
  Context context = std::move(found->second);
  contexts.erase(found);
  if (--kept_contexts_ == 0 && !enabled()) {
    const std::scoped_lock lock(mutex_);
    update_watching();
  }
  return context;
}

Context History::context_of(DeviceIndex device, const void* block) {
  const auto& contexts = of(device).contexts;
  const auto found = contexts.find(block);
  return found == contexts.end() ? nullptr : found->second;
}

std::vector<std::vector<TraceEntry>> History::entries() {
  const auto to_ns = clock_.makeConverter();
  std::vector<std::vector<TraceEntry>> all;
  for (OfDevice& device : devices_) {
    const std::scoped_lock lock(device.mutex);
    all.emplace_back(device.entries.begin(), device.entries.end());
  }
  for (auto& entries : all) {
    for (TraceEntry& entry : entries) entry.time_.t_ = to_ns(entry.time_.approx_t_) / 1000;
  }
  return all;
}

std::vector<c10::CachingDeviceAllocator::AnnotationEntry> History::annotations() {
  const auto to_ns = clock_.makeConverter();
  const std::scoped_lock lock(mutex_);
  std::vector<c10::CachingDeviceAllocator::AnnotationEntry> all(annotations_.begin(),
                                                                annotations_.end());
  for (auto& entry : all) entry.time_.t_ = to_ns(entry.time_.approx_t_) / 1000;
  return all;
}

}  // namespace gapless::torch_plugin
