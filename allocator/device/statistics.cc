#include "allocator/device/statistics.h"

namespace gapless {

void StatisticsKeeper::note_peaks(Figures& pool) {
  for (std::size_t i = 0; i < kLanes; ++i) {
    pool.peak[i] = std::max(pool.peak[i], pool.current[i]);
    peak_[i] = std::max(peak_[i], pools_[kSmall].current[i] + pools_[kLarge].current[i]);
  }
}

void StatisticsKeeper::on_deferred(bool small, std::int64_t blocks, std::int64_t bytes,
                                   std::int64_t requested) {
  Figures& pool = pools_[small ? kSmall : kLarge];
  pool.deferred[kBlocks] += blocks;
  pool.deferred[kBytes] += bytes;
  pool.deferred[kRequested] += requested;
  note_active();
}

void StatisticsKeeper::note_active() {
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    std::int64_t sum = 0;
    for (Figures& pool : pools_) {
      const std::int64_t active = pool.current[lane] + pool.deferred[lane];
      pool.active_peak[lane] = std::max(pool.active_peak[lane], active);
      sum += active;
    }
    active_peak_[lane] = std::max(active_peak_[lane], sum);
  }
}

PoolStat StatisticsKeeper::read_active(std::size_t lane) const {
  PoolStat stat = read(lane);
  const auto add = [lane](Stat& to, const Figures& pool) {
    to.current += pool.deferred[lane];
    to.freed -= pool.deferred[lane] - pool.deferred_base[lane];
  };
  const Figures& small = pools_[kSmall];
  const Figures& large = pools_[kLarge];
  for (const Figures* pool : {&small, &large}) add(stat.all, *pool);
  add(stat.small_pool, small);
  add(stat.large_pool, large);
  stat.all.peak = std::max(stat.all.peak, active_peak_[lane]);
  stat.small_pool.peak = std::max(stat.small_pool.peak, small.active_peak[lane]);
  stat.large_pool.peak = std::max(stat.large_pool.peak, large.active_peak[lane]);
  return stat;
}

void StatisticsKeeper::reset_peak() {
  for (Figures& pool : pools_) {
    pool.peak = pool.current;
    pool.active_peak = {};
  }
  active_peak_ = {};
  note_active();
  for (std::size_t i = 0; i < kLanes; ++i) {
    peak_[i] = pools_[kSmall].current[i] + pools_[kLarge].current[i];
  }
  for (Gauge* gauge : {&reserved_, &segments_}) gauge->reset_peak();
  hole_bytes_peak_ = present_.current - allocated_bytes();
  reserved_large_peak_ = reserved_large_bytes();
}

void StatisticsKeeper::reset_accumulated(const HoleTally& holes) {
  holes_at_reset_ = holes;
  volume_before_reset_ = volume_bytes();
  for (Figures& pool : pools_) {
    pool.allocated = {};
    pool.base = pool.current;
    pool.deferred_base = pool.deferred;
  }
  for (Gauge* gauge : {&reserved_, &present_, &segments_}) gauge->reset_accumulated();
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

DeviceStatistics StatisticsKeeper::read(const HoleTally& tally) const {
  const auto large_only = [](const Gauge& gauge) {
    return PoolStat{gauge.read(), {}, gauge.read()};
  };
  DeviceStatistics statistics;
  statistics.allocation = read(kBlocks);
  statistics.active = read_active(kBlocks);
  statistics.allocated_bytes = read(kBytes);
  statistics.active_bytes = read_active(kBytes);
  statistics.requested_bytes = read_active(kRequested);
  statistics.segment = large_only(segments_);
  const std::int64_t made = tally.made - holes_at_reset_.made;
  const Stat splits{tally.current, tally.peak, made,
                    made - (tally.current - holes_at_reset_.current)};
  statistics.inactive_split = {splits, {}, splits};
  statistics.reserved_bytes.all = reserved_.read();
  // These follow from the others: what blocks leave, holes and the large pool's reserve take in.
  // What is asleep, in host memory, or refused by the driver is present or reserved, not both.
  const Stat& bytes = statistics.allocated_bytes.all;
  const Stat& small = statistics.allocated_bytes.small_pool;
  const Stat& reserved = statistics.reserved_bytes.all;
  const Stat present = present_.read();
  const Stat holes{present.current - bytes.current, hole_bytes_peak_,
                   bytes.freed + present.allocated, bytes.allocated + present.freed};
  statistics.inactive_split_bytes = {holes, {}, holes};
  statistics.reserved_bytes.small_pool = small;
  statistics.reserved_bytes.small_pool.current = reserved.current - reserved_large_bytes();
  statistics.reserved_bytes.large_pool = {reserved_large_bytes(), reserved_large_peak_,
                                          reserved.allocated + small.freed,
                                          reserved.freed + small.allocated};
  statistics.num_alloc_retries = retries;
  statistics.num_ooms = ooms;
  statistics.num_sync_all_streams = syncs;
  return statistics;
}

}  // namespace gapless
