#include "allocator/device/statistics.h"

namespace gapless {

void StatisticsKeeper::reset_peak() {
  for (Pools* pools : {&blocks_, &bytes_, &requested_}) {
    for (Gauge& gauge : *pools) gauge.reset_peak();
  }
  for (Gauge* gauge : {&holes_, &hole_bytes_, &reserved_, &reserved_large_, &segments_}) gauge->reset_peak();
}

void StatisticsKeeper::reset_accumulated() {
  for (Pools* pools : {&blocks_, &bytes_, &requested_}) {
    for (Gauge& gauge : *pools) gauge.reset_accumulated();
  }
  for (Gauge* gauge : {&holes_, &hole_bytes_, &reserved_, &reserved_large_, &segments_}) gauge->reset_accumulated();
  retries = 0;
  ooms = 0;
  syncs = 0;
}

DeviceStatistics StatisticsKeeper::read() const {
  const auto pools = [](const Pools& gauges) {
    return PoolStat{gauges[kAll].read(), gauges[kSmall].read(), gauges[kLarge].read()};
  };
  const auto large_only = [](const Gauge& gauge) {
    return PoolStat{gauge.read(), {}, gauge.read()};
  };
  DeviceStatistics statistics;
  statistics.allocation = pools(blocks_);
  statistics.active = statistics.allocation;
  statistics.allocated_bytes = pools(bytes_);
  statistics.active_bytes = statistics.allocated_bytes;
  statistics.requested_bytes = pools(requested_);
  statistics.segment = large_only(segments_);
  statistics.inactive_split = large_only(holes_);
  statistics.inactive_split_bytes = large_only(hole_bytes_);
  statistics.reserved_bytes.all = reserved_.read();
  statistics.reserved_bytes.small_pool = bytes_[kSmall].read();
  statistics.reserved_bytes.large_pool = reserved_large_.read();
  statistics.num_alloc_retries = retries;
  statistics.num_ooms = ooms;
  statistics.num_sync_all_streams = syncs;
  return statistics;
}

}  // namespace gapless
