#include "allocator/device/saved_contents.h"

namespace gapless {

DriverStatus SavedContents::copy(DeviceAddress address, std::uint64_t bytes, Contents& into) const {
  std::vector<unsigned char>& held = into[address];
  held.resize(bytes);
  return driver_.copy_to_host(device_, held.data(), address, bytes, 0);
}

DriverStatus SavedContents::restore(PoolIndex pool,
                                    const std::function<bool(DeviceAddress)>& is_live) {
  Contents& contents = by_pool_[pool];
  while (!contents.empty()) {
    const auto& [address, bytes] = *contents.begin();
    if (is_live(address)) {
      const DriverStatus status =
          driver_.copy_to_device(device_, address, bytes.data(), bytes.size(), 0);
      if (status != DriverStatus::ok) return status;
    }
    contents.erase(contents.begin());
  }
  by_pool_.erase(pool);
  return DriverStatus::ok;
}

}  // namespace gapless
