// ExpectedStatistics: what the statistics must say after a program's requests and frees.
//
//   on_alloc(3 MiB)   on_free(3 MiB)   on_reset(...)   check(statistics): "" or what is wrong
//
// Blocks and their bytes are told exactly. Of every figure, those that nobody outside can know
// included, it is told that what came and what went make up the difference since the last reset,
// and that a reset sets its peak to what is there and its sums to nothing.
#pragma once

#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>

#include "allocator/device/statistics.h"

namespace gapless::testing {

/// Calls f(name, stat) for the three stats of each of the nine figures.
template <class F>
void for_each_stat(const DeviceStatistics& statistics, F&& f) {
  const std::pair<const char*, const PoolStat*> figures[] = {
      {"allocation", &statistics.allocation},
      {"segment", &statistics.segment},
      {"active", &statistics.active},
      {"inactive_split", &statistics.inactive_split},
      {"allocated_bytes", &statistics.allocated_bytes},
      {"reserved_bytes", &statistics.reserved_bytes},
      {"active_bytes", &statistics.active_bytes},
      {"inactive_split_bytes", &statistics.inactive_split_bytes},
      {"requested_bytes", &statistics.requested_bytes}};
  for (const auto& [name, figure] : figures) {
    f(fmt::format("{}.all", name), figure->all);
    f(fmt::format("{}.small_pool", name), figure->small_pool);
    f(fmt::format("{}.large_pool", name), figure->large_pool);
  }
}

class ExpectedStatistics {
 public:
  void on_alloc(std::uint64_t bytes) {
    change(bytes, 1, [](Stat& stat, std::int64_t by) { stat.allocated += by; });
  }
  void on_free(std::uint64_t bytes) {
    change(bytes, -1, [](Stat& stat, std::int64_t by) { stat.freed -= by; });
  }
  /// Peaks and sums were both reset; that is how the statistics are now.
  [[nodiscard]] std::string on_reset(const DeviceStatistics& now) {
    std::string wrong;
    std::size_t at = 0;
    had_nothing_large_ = now.reserved_bytes.large_pool.current == 0;
    for_each_stat(now, [&](const std::string& name, const Stat& stat) {
      base_[at++] = stat.current;
      if (stat.peak != stat.current || stat.allocated != 0 || stat.freed != 0) {
        wrong = name + " is not reset";
      }
    });
    if (now.num_alloc_retries != 0 || now.num_ooms != 0 || now.num_sync_all_streams != 0) {
      wrong = "a count is not reset";
    }
    for (PoolStat* figure : {&blocks_, &bytes_}) {
      for (Stat* stat : {&figure->all, &figure->small_pool, &figure->large_pool}) {
        *stat = {stat->current, stat->current, 0, 0};
      }
    }
    return wrong;
  }
  [[nodiscard]] std::string check(const DeviceStatistics& found) const {
    std::string wrong;
    std::size_t at = 0;
    // Small blocks may take up more than is reserved: while they are asleep or in host memory.
    const bool by_pool = found.reserved_bytes.large_pool.current != 0 && !had_nothing_large_;
    for_each_stat(found, [&](const std::string& name, const Stat& stat) {
      if (!by_pool && name.starts_with("reserved_bytes") && !name.ends_with("all")) {
        ++at;
        return;
      }
      if (stat.allocated - stat.freed != stat.current - base_[at++]) {
        wrong = name + ": what came and what went do not add up";
      }
      if (stat.peak < stat.current || stat.current < 0)
        wrong = name + ": a peak below, or negative";
    });
    check("allocation", found.allocation, blocks_, wrong);
    check("allocated_bytes", found.allocated_bytes, bytes_, wrong);
    return wrong;
  }

 private:
  // PyTorch's kSmallSize.
  static constexpr std::uint64_t kSmallBytes = std::uint64_t{1} << 20;

  template <class F>
  void change(std::uint64_t bytes, std::int64_t sign, F&& count) {
    const auto one = [&](PoolStat& figure, std::int64_t by) {
      Stat& pool = bytes <= kSmallBytes ? figure.small_pool : figure.large_pool;
      for (Stat* stat : {&figure.all, &pool}) {
        stat->current += by;
        stat->peak = std::max(stat->peak, stat->current);
        count(*stat, by);
      }
    };
    one(blocks_, sign);
    one(bytes_, sign * static_cast<std::int64_t>(bytes));
  }
  static void check(const char* name, const PoolStat& found, const PoolStat& expected,
                    std::string& wrong) {
    const auto one = [&](const char* pool, const Stat& is, const Stat& should) {
      const auto four = [](const Stat& stat) {
        return std::array{stat.current, stat.peak, stat.allocated, stat.freed};
      };
      if (four(is) == four(should)) return;
      wrong = fmt::format("{}.{}: {} {} {} {}, not {} {} {} {}", name, pool, is.current, is.peak,
                          is.allocated, is.freed, should.current, should.peak, should.allocated,
                          should.freed);
    };
    one("all", found.all, expected.all);
    one("small_pool", found.small_pool, expected.small_pool);
    one("large_pool", found.large_pool, expected.large_pool);
  }

  PoolStat blocks_;
  PoolStat bytes_;
  std::array<std::int64_t, 27> base_{};  // what was there at the last reset
  bool had_nothing_large_ = false;       // reserved for the large pool, then
};

}  // namespace gapless::testing
