// Counts and times the calls that pass through it.
#pragma once

#include <mutex>

#include "allocator/driver/forwarding_driver.h"

namespace gapless {

/// How often each call was made, how often it did not return ok, and the host time spent in it.
struct DriverCallCounts {
  PerDriverCall<std::uint64_t> calls{};
  PerDriverCall<std::uint64_t> failures{};  // not_ready is an answer, not a failure
  PerDriverCall<std::uint64_t> host_ns{};

  [[nodiscard]] std::uint64_t of(DriverCall call) const {
    return calls[static_cast<std::size_t>(call)];
  }
  [[nodiscard]] std::uint64_t total() const;
  /// Calls in which the host may have waited for the device.
  [[nodiscard]] std::uint64_t host_syncs() const;
  [[nodiscard]] std::uint64_t total_ns() const;
  /// What was counted since `earlier`, an older reading of the same counter.
  [[nodiscard]] DriverCallCounts since(const DriverCallCounts& earlier) const;
};

class CountingDriver : public ForwardingDriver {
 public:
  /// Reads the time in nanoseconds; injected, so that a simulated GPU's clock can serve.
  using Clock = std::function<std::uint64_t()>;

  /// With the host's steady clock where none is given.
  explicit CountingDriver(Driver& inner, Clock clock = {});

  [[nodiscard]] DriverCallCounts counts() const;

 protected:
  DriverStatus around(DriverCall kind, const Call& call) override;

 private:
  Clock clock_;
  mutable std::mutex mutex_;
  DriverCallCounts counts_;
};

}  // namespace gapless
