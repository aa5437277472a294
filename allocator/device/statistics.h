// Statistics: PyTorch's DeviceStats in full, kept in a few additions per request.
//
// Every figure has current, peak, allocated (total ever) and freed (total ever), for all memory and
// for PyTorch's two pools: small (rounded size <= 1 MiB) and large.
//
// gapless has one home where PyTorch has two pools of segments, so two things are said of pools by
// agreement: memory reserved for the small pool is what small blocks take up, all other reserved
// memory is the large pool's; and holes (PyTorch's inactive split blocks) belong to the large pool.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace gapless {

struct Stat {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  std::int64_t allocated = 0;
  std::int64_t freed = 0;
};

struct PoolStat {
  Stat all;
  Stat small_pool;
  Stat large_pool;
};

/// c10::CachingDeviceAllocator::DeviceStats, field by field.
struct DeviceStatistics {
  PoolStat allocation;      // blocks handed out
  PoolStat segment;         // address ranges with memory: the home and the windows
  PoolStat active;          // blocks handed out or not yet reusable
  PoolStat inactive_split;  // holes
  PoolStat allocated_bytes;
  PoolStat reserved_bytes;
  PoolStat active_bytes;
  PoolStat inactive_split_bytes;
  PoolStat requested_bytes;
  Stat oversize_allocations;  // always zero: gapless has no max_split_size
  Stat oversize_segments;
  std::int64_t num_alloc_retries = 0;
  std::int64_t num_ooms = 0;
  std::int64_t num_sync_all_streams = 0;
  std::int64_t num_device_alloc = 0;  // pages created
  std::int64_t num_device_free = 0;   // pages released
  std::int64_t max_split_size = -1;
};

/// One figure while it is being kept: as Stat, but for `freed`, which is allocated - current since
/// the last reset.
class Gauge {
 public:
  void add(std::int64_t amount) {
    current_ += amount;
    allocated_ += amount;
    peak_ = std::max(peak_, current_);
  }
  void subtract(std::int64_t amount) { current_ -= amount; }
  /// Moves to a new value.
  void set(std::int64_t value) {
    if (value > current_) {
      add(value - current_);
    } else {
      subtract(current_ - value);
    }
  }
  void reset_peak() { peak_ = current_; }
  void reset_accumulated() {
    allocated_ = 0;
    base_ = current_;
  }
  [[nodiscard]] std::int64_t current() const { return current_; }
  [[nodiscard]] std::int64_t peak() const { return peak_; }
  [[nodiscard]] Stat read() const {
    return {current_, peak_, allocated_, allocated_ - (current_ - base_)};
  }

 private:
  std::int64_t current_ = 0;
  std::int64_t peak_ = 0;
  std::int64_t allocated_ = 0;
  std::int64_t base_ = 0;  // current at the last reset of the accumulated figures
};

/// The figures of one device as they change.
class StatisticsKeeper {
 public:
  void on_alloc(bool small, std::int64_t bytes, std::int64_t requested) {
    const std::size_t pool = small ? kSmall : kLarge;
    for (const std::size_t which : {kAll, pool}) {
      blocks_[which].add(1);
      bytes_[which].add(bytes);
      requested_[which].add(requested);
    }
    if (small) reserved_large_.subtract(bytes);
  }
  void on_free(bool small, std::int64_t bytes, std::int64_t requested) {
    const std::size_t pool = small ? kSmall : kLarge;
    for (const std::size_t which : {kAll, pool}) {
      blocks_[which].subtract(1);
      bytes_[which].subtract(bytes);
      requested_[which].subtract(requested);
    }
    if (small) reserved_large_.add(bytes);
  }
  void set_holes(std::int64_t count, std::int64_t bytes) {
    holes_.set(count);
    hole_bytes_.set(bytes);
  }
  void set_reserved(std::int64_t bytes) {
    reserved_.set(bytes);
    reserved_large_.set(bytes - bytes_[kSmall].current());
  }
  void set_segments(std::int64_t count) { segments_.set(count); }

  [[nodiscard]] std::int64_t allocated_bytes() const { return bytes_[kAll].current(); }
  [[nodiscard]] std::int64_t peak_allocated_bytes() const { return bytes_[kAll].peak(); }

  void reset_peak();
  void reset_accumulated();

  /// The figures this keeps; the num_ fields are left at zero but for these two.
  [[nodiscard]] DeviceStatistics read() const;
  std::int64_t retries = 0;
  std::int64_t ooms = 0;
  std::int64_t syncs = 0;

 private:
  static constexpr std::size_t kAll = 0;
  static constexpr std::size_t kSmall = 1;
  static constexpr std::size_t kLarge = 2;
  using Pools = std::array<Gauge, 3>;

  Pools blocks_;
  Pools bytes_;
  Pools requested_;
  Gauge holes_;
  Gauge hole_bytes_;
  Gauge reserved_;
  Gauge reserved_large_;
  Gauge segments_;
};

}  // namespace gapless
