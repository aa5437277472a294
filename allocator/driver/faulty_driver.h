// Fails chosen calls on purpose: the n-th call of a kind, once or from then on.
//
//   FaultyDriver faulty(sim);
//   faulty.fail({.kind = DriverCall::mem_map, .nth = 3, .status = DriverStatus::out_of_memory});
//
// A failed call never reaches the driver inside, so it changes nothing there. A fault sweep runs a
// scenario with nth = 1, 2, 3 ... until a run ends in which nothing was left to fail.
#pragma once

#include <mutex>
#include <optional>

#include "allocator/driver/forwarding_driver.h"

namespace gapless {

struct Fault {
  /// Any kind where empty.
  std::optional<DriverCall> kind;
  /// Counted from 1, over the calls of that kind made after fail().
  std::uint64_t nth = 1;
  DriverStatus status = DriverStatus::unknown;
  /// false: this call only. true: this call and every later one of the kind.
  bool persistent = false;
};

class FaultyDriver : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;

  /// Arms a fault; replaces an earlier one.
  void fail(const Fault& fault);
  /// No call fails any more.
  void heal();
  /// How many calls were failed since fail().
  [[nodiscard]] std::uint64_t fired() const;

 protected:
  DriverStatus around(DriverCall kind, const Call& call) override;

 private:
  mutable std::mutex mutex_;
  std::optional<Fault> fault_;
  std::uint64_t seen_ = 0;
  std::uint64_t fired_ = 0;
};

}  // namespace gapless
