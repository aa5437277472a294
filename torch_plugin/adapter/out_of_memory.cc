// TorchAllocator: a request that failed. PyTorch's message, word for word, and what gapless knows
// beyond it: what is live, why what is free could not be used, and what would have made it fit.
#include "allocator/report/out_of_memory.h"

#include "allocator/report/oom_dump.h"
#include "torch_plugin/adapter/call_sites.h"
#include "torch_plugin/adapter/pickled_snapshot.h"
#include "torch_plugin/adapter/process_memory.h"
#include "torch_plugin/adapter/torch_allocator.h"

namespace gapless::torch_plugin {
namespace {

// c10/cuda/CUDACachingAllocator.cpp's words, which people search for and programs match.
std::string torch_message(const HeapReport& heap, std::uint64_t bytes, std::uint64_t total_bytes,
                          std::uint64_t free_bytes) {
  const auto allocated = static_cast<std::uint64_t>(heap.statistics.allocated_bytes.all.current);
  const auto reserved = static_cast<std::uint64_t>(heap.statistics.reserved_bytes.all.current);
  std::uint64_t in_pools = 0;
  for (const BlockReport& block : heap.home) {
    const bool used = block.kind == BlockReport::Kind::live;
    if (used && block.pool != PoolId{}) in_pools += block.bytes;
  }
  for (const WindowBlockReport& block : heap.window_blocks) {
    if (!block.held && block.pool != PoolId{}) in_pools += block.bytes;
  }
  std::string text = "CUDA out of memory. Tried to allocate " + torch_size(bytes) + ". GPU " +
                     std::to_string(heap.device) + " has a total capacity of " +
                     torch_size(total_bytes) + " of which " + torch_size(free_bytes) +
                     " is free. " + processes_text(heap.device, total_bytes - free_bytes);
  if (heap.limit_bytes < total_bytes) text += torch_size(heap.limit_bytes) + " allowed; ";
  text += "Of the allocated memory " + torch_size(allocated) + " is allocated by PyTorch, ";
  if (in_pools != 0) {
    text += "with " + torch_size(in_pools) + " allocated in private pools (e.g., CUDA Graphs), ";
  }
  // PyTorch goes on with advice of its own: settings of segments that gapless does not have.
  return text + "and " + torch_size(reserved - std::min(reserved, allocated)) +
         " is reserved by PyTorch but unallocated.";
}

}  // namespace

void TorchAllocator::fail(DeviceIndex device, std::uint64_t bytes, std::uint64_t rounded_bytes,
                          cudaStream_t stream, Status status, Context context) {
  DeviceCore& core = core_of(device);
  TORCH_CHECK(status == Status::out_of_memory, "gapless: ", core.last_failure());
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
  std::size_t free = 0;
  std::size_t total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  const std::uint64_t asked = (std::max(bytes, rounded_bytes) + 511) / 512 * 512;
  const HeapReport heap = core.report();
  FailedRequest request = core.last_failed_request();
  if (history_->watching()) {
    const auto watch = history_->watch(device);
    record(device, TraceEntry::OOM, pointer_of(free), asked, handle_of(stream), request.pool,
           std::move(context));
  }
  const auto allocated = static_cast<std::uint64_t>(heap.statistics.allocated_bytes.all.current);
  const auto reserved = static_cast<std::uint64_t>(heap.statistics.reserved_bytes.all.current);
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(asked), allocated, reserved,
                                   c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
  std::vector<torch_cuda::OutOfMemoryObserver> observers;
  {
    const std::scoped_lock lock(mutex_);
    observers = out_of_memory_observers_;
  }
  const std::uint64_t allowed = std::min<std::uint64_t>(heap.limit_bytes, total);
  for (const auto& observer : observers) observer(device, asked, allowed, free);
  std::string text = torch_message(heap, asked, total, free);
  const gapless_torch_places places =
      history_->enabled() ? call_sites(device) : gapless_torch_places{};
  const OutOfMemoryReport why =
      explain(heap, request, free, {places.largest_bytes, places.largest_at});
  // PyTorch goes on with advice in this line.
  if (const std::string helps = headline(why); !helps.empty()) text += " " + helps;
  text += "\ngapless: " + to_text(why);
  if (const std::string live = places.live; !live.empty()) {
    text += "\n  live by call site: " + live;
  }
  if (!options_.dump_on_oom.empty()) {
    const std::string where =
        write_oom_dump(options_.dump_on_oom, heap, why, text, pickled_snapshot);
    if (!where.empty()) text += "\n  " + where;
  }
  TORCH_CHECK_WITH(OutOfMemoryError, false, text);
}

}  // namespace gapless::torch_plugin
