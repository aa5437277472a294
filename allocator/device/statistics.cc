#include "allocator/device/statistics.h"

namespace gapless {

void StatisticsKeeper::reset_peak() {
  for (Figures& pool : pools_) pool.peak = pool.current;
  for (std::size_t i = 0; i < kLanes; ++i) {
    peak_[i] = pools_[kSmall].current[i] + pools_[kLarge].current[i];
  }
  for (Gauge* gauge : {&holes_, &hole_bytes_, &reserved_, &reserved_large_, &segments_}) {
    gauge->reset_peak();
  }
}

void StatisticsKeeper::reset_accumulated() {
  for (Figures& pool : pools_) {
    pool.allocated = {};
    pool.base = pool.current;
  }
  for (Gauge* gauge : {&holes_, &hole_bytes_, &reserved_, &reserved_large_, &segments_}) {
    gauge->reset_accumulated();
  }
  retries = 0;
  ooms = 0;
  syncs = 0;
}

PoolStat StatisticsKeeper::read(std::size_t lane) const {
  const auto of = [lane](const Figures& pool) {
    const std::int64_t freed = pool.allocated[lane] - (pool.current[lane] - pool.base[lane]);
    return Stat{pool.current[lane], pool.peak[lane], pool.allocated[lane], freed};
  };
  const Stat small = of(pools_[kSmall]);
  const Stat large = of(pools_[kLarge]);
  return {{small.current + large.current, peak_[lane], small.allocated + large.allocated,
           small.freed + large.freed},
          small,
          large};
}

DeviceStatistics StatisticsKeeper::read() const {
  const auto large_only = [](const Gauge& gauge) {
    return PoolStat{gauge.read(), {}, gauge.read()};
  };
  DeviceStatistics statistics;
  statistics.allocation = read(kBlocks);
  statistics.active = statistics.allocation;
  statistics.allocated_bytes = read(kBytes);
  statistics.active_bytes = statistics.allocated_bytes;
  statistics.requested_bytes = read(kRequested);
  statistics.segment = large_only(segments_);
  statistics.inactive_split = large_only(holes_);
  statistics.inactive_split_bytes = large_only(hole_bytes_);
  statistics.reserved_bytes.all = reserved_.read();
  statistics.reserved_bytes.small_pool = statistics.allocated_bytes.small_pool;
  statistics.reserved_bytes.large_pool = reserved_large_.read();
  statistics.num_alloc_retries = retries;
  statistics.num_ooms = ooms;
  statistics.num_sync_all_streams = syncs;
  return statistics;
}

}  // namespace gapless
