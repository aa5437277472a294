// FailedRequests: requests that found no memory. Who may still free some is asked before one fails,
// and who wants to know is told after it has.
//
//   no memory --> callbacks free some --> tried again --> still none --> the last failure,
//   observers
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "allocator/device/pools.h"
#include "allocator/driver/driver.h"

namespace gapless {

/// A request that could not be served.
struct FailedRequest {
  DeviceIndex device = 0;
  std::uint64_t bytes = 0;
  StreamHandle stream = 0;
  PoolId pool;
};

class FailedRequests {
 public:
  /// Whether it freed memory.
  using Callback = std::function<bool()>;
  using Observer = std::function<void(const FailedRequest&)>;

  void add_callback(Callback callback) { callbacks_.push_back(std::move(callback)); }
  void add_observer(Observer observer) { observers_.push_back(std::move(observer)); }
  /// In the order in which they were added; called without a lock, they may add others.
  [[nodiscard]] const std::vector<Callback>& callbacks() const { return callbacks_; }
  [[nodiscard]] const std::vector<Observer>& observers() const { return observers_; }

  void note(const FailedRequest& failed) { last_ = failed; }
  /// The last one; 0 bytes where there was none.
  [[nodiscard]] const FailedRequest& last() const { return last_; }
  /// Why it failed, in words.
  void explain(std::string why) { why_ = std::move(why); }
  [[nodiscard]] const std::string& why() const { return why_; }

 private:
  std::vector<Callback> callbacks_;
  std::vector<Observer> observers_;
  FailedRequest last_;
  std::string why_;
};

}  // namespace gapless
