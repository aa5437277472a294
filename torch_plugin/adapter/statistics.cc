#include "torch_plugin/adapter/statistics.h"

namespace gapless::torch_plugin {
namespace {

using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using TorchStat = c10::CachingAllocator::Stat;

TorchStat to_torch(const Stat& stat) {
  TorchStat made;
  made.current = stat.current;
  made.peak = stat.peak;
  made.allocated = stat.allocated;
  made.freed = stat.freed;
  return made;
}

StatArray to_torch(const PoolStat& stat) {
  StatArray made;
  made[static_cast<std::size_t>(StatType::AGGREGATE)] = to_torch(stat.all);
  made[static_cast<std::size_t>(StatType::SMALL_POOL)] = to_torch(stat.small_pool);
  made[static_cast<std::size_t>(StatType::LARGE_POOL)] = to_torch(stat.large_pool);
  return made;
}

void add(TorchStat& stat, const TorchStat& other) {
  stat.current += other.current;
  stat.peak += other.current;  // what is left there was there at the peak, or nearly
  stat.allocated += other.allocated;
  stat.freed += other.freed;
}

void add(StatArray& stat, const StatArray& other) {
  for (std::size_t i = 0; i < stat.size(); ++i) add(stat[i], other[i]);
}

}  // namespace

torch_cuda::DeviceStats to_torch(const DeviceStatistics& from) {
  torch_cuda::DeviceStats stats;
  stats.allocation = to_torch(from.allocation);
  stats.segment = to_torch(from.segment);
  stats.active = to_torch(from.active);
  stats.inactive_split = to_torch(from.inactive_split);
  stats.allocated_bytes = to_torch(from.allocated_bytes);
  stats.reserved_bytes = to_torch(from.reserved_bytes);
  stats.active_bytes = to_torch(from.active_bytes);
  stats.inactive_split_bytes = to_torch(from.inactive_split_bytes);
  stats.requested_bytes = to_torch(from.requested_bytes);
  stats.num_alloc_retries = from.num_alloc_retries;
  stats.num_ooms = from.num_ooms;
  stats.oversize_allocations = to_torch(from.oversize_allocations);
  stats.oversize_segments = to_torch(from.oversize_segments);
  stats.num_sync_all_streams = from.num_sync_all_streams;
  stats.num_device_alloc = from.num_device_alloc;
  stats.num_device_free = from.num_device_free;
  stats.max_split_size = from.max_split_size;
  return stats;
}

void add(torch_cuda::DeviceStats& stats, const torch_cuda::DeviceStats& others) {
  add(stats.allocation, others.allocation);
  add(stats.segment, others.segment);
  add(stats.active, others.active);
  add(stats.inactive_split, others.inactive_split);
  add(stats.allocated_bytes, others.allocated_bytes);
  add(stats.reserved_bytes, others.reserved_bytes);
  add(stats.active_bytes, others.active_bytes);
  add(stats.inactive_split_bytes, others.inactive_split_bytes);
  add(stats.requested_bytes, others.requested_bytes);
}

}  // namespace gapless::torch_plugin
