#include "allocator/driver/counting_driver.h"

#include <chrono>
#include <numeric>
#include <utility>

namespace gapless {
namespace {

std::uint64_t steady_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

}  // namespace

std::uint64_t DriverCallCounts::total() const {
  return std::accumulate(calls.begin(), calls.end(), std::uint64_t{0});
}

std::uint64_t DriverCallCounts::host_syncs() const {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kDriverCalls; ++i) {
    if (is_host_sync(static_cast<DriverCall>(i))) sum += calls[i];
  }
  return sum;
}

std::uint64_t DriverCallCounts::total_ns() const {
  return std::accumulate(host_ns.begin(), host_ns.end(), std::uint64_t{0});
}

DriverCallCounts DriverCallCounts::since(const DriverCallCounts& earlier) const {
  DriverCallCounts difference;
  for (std::size_t i = 0; i < kDriverCalls; ++i) {
    difference.calls[i] = calls[i] - earlier.calls[i];
    difference.failures[i] = failures[i] - earlier.failures[i];
    difference.host_ns[i] = host_ns[i] - earlier.host_ns[i];
  }
  return difference;
}

CountingDriver::CountingDriver(Driver& inner, Clock clock)
    : ForwardingDriver(inner), clock_(clock ? std::move(clock) : Clock(steady_ns)) {}

DriverCallCounts CountingDriver::counts() const {
  const std::scoped_lock lock(mutex_);
  return counts_;
}

DriverStatus CountingDriver::around(DriverCall kind, const Call& call) {
  const std::uint64_t begin = clock_();
  const DriverStatus status = call();
  const std::uint64_t end = clock_();
  const auto index = static_cast<std::size_t>(kind);
  const std::scoped_lock lock(mutex_);
  ++counts_.calls[index];
  counts_.host_ns[index] += end - begin;
  if (status != DriverStatus::ok && status != DriverStatus::not_ready) ++counts_.failures[index];
  return status;
}

}  // namespace gapless
