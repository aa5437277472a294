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

#include "allocator/heap/home.h"

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
  PoolStat requested_bytes;   // of active blocks
  Stat oversize_allocations;  // always zero: gapless has no max_split_size
  Stat oversize_segments;
  std::int64_t num_alloc_retries = 0;
  std::int64_t num_ooms = 0;
  std::int64_t num_sync_all_streams = 0;
  std::int64_t num_device_alloc = 0;  // pages created
  std::int64_t num_device_free = 0;   // pages released
  std::int64_t max_split_size = -1;
};

/// One figure while it is being kept. What was freed follows from what was allocated and what is
/// left, so it is not counted.
struct Gauge {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  std::int64_t allocated = 0;  // since the last reset
  std::int64_t base = 0;       // current at the last reset

  void add(std::int64_t amount) {
    current += amount;
    allocated += amount;
    note_peak();
  }
  void note_peak() {
    if (current > peak) [[unlikely]]
      peak = current;
  }
  /// Moves to a new value.
  void set(std::int64_t value) {
    allocated += std::max<std::int64_t>(0, value - current);  // no branch: it goes either way
    current = value;
    note_peak();
  }
  void reset_peak() { peak = current; }
  void reset_accumulated() {
    allocated = 0;
    base = current;
  }
  [[nodiscard]] Stat read() const {
    return {current, peak, allocated, allocated - (current - base)};
  }
};

/// The figures of one device as they change. on_alloc and on_free are on the fast path: what is
/// kept is as little as the rest can be had from, and a peak is compared, but rarely written.
class StatisticsKeeper {
 public:
  void on_alloc(bool small, std::int64_t bytes, std::int64_t requested) {
    // No branch: sizes are unpredictable.
    Figures& pool = pools_[kSmall + static_cast<std::size_t>(!small)];
    const Figures& other = pools_[kSmall + static_cast<std::size_t>(small)];
    const Lanes change{1, bytes, requested};
    bool higher = false;
    for (std::size_t i = 0; i < kLanes; ++i) {
      pool.allocated[i] += change[i];
      const std::int64_t current = pool.current[i] + change[i];
      pool.current[i] = current;
      higher = higher || current > pool.peak[i] || current + other.current[i] > peak_[i];
    }
    if (higher) [[unlikely]]
      note_peaks(pool);
  }
  /// Blocks that are freed, but held (pins) or still counted as active (deferred_frees.h). PyTorch
  /// counts what was requested with them.
  void on_deferred(bool small, std::int64_t blocks, std::int64_t bytes, std::int64_t requested);
  [[nodiscard]] bool has_deferred() const {
    return pools_[kSmall].deferred[0] + pools_[kLarge].deferred[0] != 0;
  }
  /// Something was allocated while there are such.
  void note_active();
  void on_free(bool small, std::int64_t bytes, std::int64_t requested) {
    Figures& pool = pools_[small ? kSmall : kLarge];
    const Lanes change{1, bytes, requested};
    for (std::size_t i = 0; i < kLanes; ++i) pool.current[i] -= change[i];
    note_free_memory();
  }
  /// Reserved bytes in all, and those of pages that hold blocks or holes.
  void set_reserved(std::int64_t bytes, std::int64_t present_bytes) {
    reserved_.set(bytes);
    present_.set(present_bytes);
    note_free_memory();
  }
  void set_segments(std::int64_t count) { segments_.set(count); }

  [[nodiscard]] std::int64_t allocated_bytes() const {
    return pools_[kSmall].current[kBytes] + pools_[kLarge].current[kBytes];
  }
  [[nodiscard]] std::int64_t reserved_bytes() const { return reserved_.current; }
  [[nodiscard]] std::int64_t peak_allocated_bytes() const { return peak_[kBytes]; }
  /// All bytes ever allocated, whatever was reset.
  [[nodiscard]] std::int64_t volume_bytes() const {
    return volume_before_reset_ + pools_[kSmall].allocated[kBytes] +
           pools_[kLarge].allocated[kBytes];
  }

  void reset_peak();
  void reset_accumulated(const HoleTally& holes);

  /// The figures this keeps, and those of holes; those of the driver's calls are left at zero.
  [[nodiscard]] DeviceStatistics read(const HoleTally& holes) const;

  std::int64_t retries = 0;
  std::int64_t ooms = 0;
  std::int64_t syncs = 0;

 private:
  static constexpr std::size_t kSmall = 0;
  static constexpr std::size_t kLarge = 1;
  static constexpr std::size_t kBlocks = 0;
  static constexpr std::size_t kBytes = 1;
  static constexpr std::size_t kRequested = 2;
  static constexpr std::size_t kLanes = 3;
  using Lanes = std::array<std::int64_t, kLanes>;
  struct Figures {
    Lanes current{};
    Lanes peak{};
    Lanes allocated{};  // since the last reset
    Lanes base{};       // current at the last reset
    Lanes deferred{};
    Lanes deferred_base{};  // at the last reset
    Lanes active_peak{};    // since there were any
  };

  [[gnu::noinline]] void note_peaks(Figures& pool);
  /// Frees and new pages raise what is free and what the large pool has.
  void note_free_memory() {
    const std::int64_t holes = present_.current - allocated_bytes();
    if (holes > hole_bytes_peak_) [[unlikely]]
      hole_bytes_peak_ = holes;
    const std::int64_t reserved = reserved_large_bytes();
    if (reserved > reserved_large_peak_) [[unlikely]]
      reserved_large_peak_ = reserved;
  }
  [[nodiscard]] PoolStat read(std::size_t lane) const;
  /// With what is deferred.
  [[nodiscard]] PoolStat read_active(std::size_t lane) const;
  /// What small blocks take up is reserved for the small pool, the rest for the large one. Blocks
  /// may lie in host memory (spill), which is not reserved of the device.
  [[nodiscard]] std::int64_t reserved_large_bytes() const {
    return std::max<std::int64_t>(0, reserved_.current - pools_[kSmall].current[kBytes]);
  }

  std::array<Figures, 2> pools_;
  Lanes peak_{};  // of both pools together
  Lanes active_peak_{};
  std::int64_t volume_before_reset_ = 0;
  HoleTally holes_at_reset_;
  Gauge reserved_;
  Gauge present_;  // in pages that hold blocks or holes
  std::int64_t hole_bytes_peak_ = 0;
  std::int64_t reserved_large_peak_ = 0;
  Gauge segments_;
};

}  // namespace gapless
