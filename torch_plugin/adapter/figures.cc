// TorchAllocator: statistics, limits, and what other libraries ask about memory.
#include <algorithm>

#include "torch_plugin/adapter/newer.h"
#include "torch_plugin/adapter/settings.h"
#include "torch_plugin/adapter/statistics.h"
#include "torch_plugin/adapter/torch_allocator.h"

namespace gapless::torch_plugin {

torch_cuda::DeviceStats TorchAllocator::getDeviceStats(c10::DeviceIndex device) {
  DeviceCore& core = core_of(device);
  torch_cuda::DeviceStats stats = to_torch(core.statistics());
  if (previous_->initialized()) add(stats, previous_->getDeviceStats(device));
  with_private_pools(stats, [&](auto& by_pool) {
    for (const torch_cuda::SegmentInfo& segment : snapshot({0, 0}, false).segments) {
      const MempoolId_t pool = segment.owner_private_pool_id;
      if (segment.device != device || pool == MempoolId_t{0, 0}) continue;
      auto& stat =
          by_pool[pool][static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
      stat.current += static_cast<int64_t>(segment.total_size);
      stat.peak = std::max(stat.peak, stat.current);
    }
  });
  return stats;
}

void TorchAllocator::resetAccumulatedStats(c10::DeviceIndex device) {
  core_of(device).reset_accumulated_statistics();
  if (previous_->initialized()) previous_->resetAccumulatedStats(device);
}

void TorchAllocator::resetPeakStats(c10::DeviceIndex device) {
  core_of(device).reset_peak_statistics();
  if (previous_->initialized()) previous_->resetPeakStats(device);
}

double TorchAllocator::getMemoryFraction(c10::DeviceIndex device) {
  (void)core_of(device);
  const std::scoped_lock lock(mutex_);
  return fractions_[static_cast<std::size_t>(device)];
}

void TorchAllocator::setMemoryFraction(double fraction, c10::DeviceIndex device) {
  TORCH_CHECK(0 <= fraction && fraction <= 1, "invalid fraction:", fraction,
              ". Please set within [0, 1].");
  (void)core_of(device);
  {
    const std::scoped_lock lock(mutex_);
    fractions_[static_cast<std::size_t>(device)] = fraction;
  }
  apply_limit(device);
}

void TorchAllocator::apply_limit(DeviceIndex device) {
  DeviceCore& core = core_of(device);
  const double fraction = fractions_[static_cast<std::size_t>(device)];
  std::uint64_t limit = UINT64_MAX;
  if (fraction < 1) {
    limit = static_cast<std::uint64_t>(fraction * static_cast<double>(core.total_bytes()));
  }
  core.set_limit_bytes(std::min(limit, options_.limit));
  core.set_soft_limit_bytes(std::min(options_.soft_limit, settings::soft_limit_bytes(limit)));
}

void TorchAllocator::cacheInfo(c10::DeviceIndex device, size_t* largest) {
  const DeviceCore& core = core_of(device);
  const HeapReport report = core.report();
  const auto reserved = static_cast<std::uint64_t>(report.statistics.reserved_bytes.all.current);
  const c10::cuda::CUDAGuard guard(device);
  std::size_t free = 0;
  std::size_t total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  const std::uint64_t limit = std::min<std::uint64_t>(report.limit_bytes, total);
  // Free pages and new ones are joined to one piece.
  const std::uint64_t joined =
      report.free_page_bytes + std::min<std::uint64_t>(free, limit - std::min(limit, reserved));
  *largest = std::max<std::size_t>(*largest, joined);
}

void* TorchAllocator::getBaseAllocation(void* pointer, size_t* size) {
  refuse_in_child();
  DeviceIndex device = 0;
  BlockFacts facts;
  if (find(pointer, device, facts) == nullptr) return previous_->getBaseAllocation(pointer, size);
  // Segments are gapless's own business: to others each block is an allocation.
  if (size != nullptr) *size = facts.bytes;
  return pointer;
}

std::vector<torch_cuda::StreamSegmentSize> TorchAllocator::getExpandableSegmentSizes(
    c10::DeviceIndex device) {
  std::vector<torch_cuda::StreamSegmentSize> sizes;
  for (const torch_cuda::SegmentInfo& segment : snapshot({0, 0}, false).segments) {
    if (segment.device != device) continue;
    sizes.emplace_back(static_cast<cudaStream_t>(segment.stream), false, segment.total_size);
  }
  return sizes;
}

}  // namespace gapless::torch_plugin
