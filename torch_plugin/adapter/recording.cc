// TorchAllocator: history, snapshots, annotations, observers.
#include "torch_plugin/adapter/newer.h"
#include "torch_plugin/adapter/settings.h"
#include "torch_plugin/adapter/snapshot.h"
#include "torch_plugin/adapter/torch_allocator.h"

namespace gapless::torch_plugin {

void TorchAllocator::with_history(std::function<void(History&)> action) {
  refuse_in_child();
  {
    const std::scoped_lock lock(mutex_);
    if (core_ == nullptr) {
      at_init_.push_back(std::move(action));
      return;
    }
  }
  action(*history_);
}

void TorchAllocator::record(DeviceIndex device, TraceEntry::Action action, const void* pointer,
                            std::uint64_t bytes, StreamHandle stream, MempoolId_t pool,
                            Context context) {
  history_->record(
      device, {action, address_of(pointer), bytes, pointer_of(stream), pool, std::move(context)});
}

void TorchAllocator::recordHistory(bool enabled, torch_cuda::CreateContextFn gather,
                                   size_t most_entries, torch_cuda::RecordContext when, bool clear,
                                   const std::vector<std::string>& skip_actions) {
  with_history([=](History& history) {
    history.configure(enabled, gather, most_entries, when, clear, skip_actions);
  });
}

void TorchAllocator::attachAllocatorTraceTracker(torch_cuda::AllocatorTraceTracker tracker) {
  with_history([tracker](History& history) { history.add_tracker(tracker); });
}

void TorchAllocator::attachOutOfMemoryObserver(torch_cuda::OutOfMemoryObserver observer) {
  refuse_in_child();
  const std::scoped_lock lock(mutex_);
  out_of_memory_observers_.push_back(std::move(observer));
}

void TorchAllocator::attachOomRejectionObserver(
    std::function<void(int64_t, size_t, size_t, size_t)> /*observer*/) {}

void TorchAllocator::recordAnnotation(const Annotations& annotations) {
  if (!isHistoryEnabled()) return;
  c10::DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  history_->record_annotations(device, annotations);
}

void TorchAllocator::pushCompileContext(std::string& context) {
  thread_notes().compile_contexts.push_back(context);
}

void TorchAllocator::popCompileContext() {
  auto& contexts = thread_notes().compile_contexts;
  if (!contexts.empty()) contexts.pop_back();
}

void TorchAllocator::setUserMetadata(const std::string& metadata) {
  thread_notes().user_metadata = metadata;
}

void TorchAllocator::annotateMemory(const void* pointer, const std::string& metadata) {
  const auto action = annotate_action();
  DeviceIndex device = 0;
  BlockFacts facts;
  if (!action || !isHistoryEnabled() || find(pointer, device, facts) == nullptr) return;
  const Context context = history_->gather(torch_cuda::RecordContext::ALL);
  const auto watch = history_->watch(device);
  history_->record(device,
                   {*action, address_of(pointer), facts.requested_bytes, pointer_of(facts.stream),
                    facts.pool, context},
                   metadata);
}

std::shared_ptr<c10::GatheredContext> TorchAllocator::getContextForPointer(const void* pointer) {
  DeviceIndex device = 0;
  BlockFacts facts;
  if (find(pointer, device, facts) == nullptr) return nullptr;
  const auto watch = history_->watch(device);
  return history_->context_of(device, pointer);
}

torch_cuda::SnapshotInfo TorchAllocator::snapshot(MempoolId_t pool, bool include_traces) {
  const bool all = pool == MempoolId_t{0, 0};
  torch_cuda::SnapshotInfo info;
  info.config_metadata = settings::for_snapshot();
  if (core_ == nullptr) return info;
  if (include_traces) info.device_traces = history_->entries();  // without the one of this call
  for (DeviceIndex device = 0; device < core_->devices(); ++device) {
    const auto watch = history_->watch(device);
    const HeapReport report = core_->device(device)->report();
    if (history_->watching()) {
      record(device, TraceEntry::SNAPSHOT, nullptr,
             static_cast<std::uint64_t>(report.statistics.active_bytes.all.current), 0, {},
             nullptr);
    }
    auto segments =
        segments_of(report, [&](const void* block) { return history_->context_of(device, block); });
    if (const auto at = static_cast<std::size_t>(device); at < info.device_traces.size()) {
      split_for_viewer(info.device_traces[at], segments);
    }
    for (auto& segment : segments) {
      if (all || segment.owner_private_pool_id == pool) info.segments.push_back(std::move(segment));
    }
  }
  if (previous_->initialized()) {
    auto others = previous_->snapshot(pool, false).segments;
    info.segments.insert(info.segments.end(), std::make_move_iterator(others.begin()),
                         std::make_move_iterator(others.end()));
  }
  info.external_annotations = history_->annotations();
  return info;
}

}  // namespace gapless::torch_plugin
