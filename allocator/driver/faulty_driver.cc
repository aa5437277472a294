#include "allocator/driver/faulty_driver.h"

namespace gapless {

void FaultyDriver::fail(const Fault& fault) {
  const std::scoped_lock lock(mutex_);
  fault_ = fault;
  seen_ = 0;
  fired_ = 0;
}

void FaultyDriver::heal() {
  const std::scoped_lock lock(mutex_);
  fault_.reset();
}

std::uint64_t FaultyDriver::fired() const {
  const std::scoped_lock lock(mutex_);
  return fired_;
}

DriverStatus FaultyDriver::around(DriverCall kind, const Call& call) {
  {
    const std::scoped_lock lock(mutex_);
    if (fault_ && (!fault_->kind || *fault_->kind == kind)) {
      ++seen_;
      if (seen_ == fault_->nth || (fault_->persistent && seen_ > fault_->nth)) {
        ++fired_;
        return fault_->status;
      }
    }
  }
  return call();
}

}  // namespace gapless
