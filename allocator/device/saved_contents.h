// SavedContents: what blocks of pools that sleep held, in host memory, until they wake.
//
//   pool 3    0x7f..000  [ 4 MiB of bytes ]      copied back to the same address,
//             0x7f..400  [ 1 MiB of bytes ]      if a block lives there still
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "allocator/device/pools.h"
#include "allocator/driver/driver.h"

namespace gapless {

class SavedContents {
 public:
  /// Of blocks, by address.
  using Contents = std::map<DeviceAddress, std::vector<unsigned char>>;

  SavedContents(Driver& driver, DeviceIndex device) : driver_(driver), device_(device) {}

  /// Copies so many bytes from that address.
  DriverStatus copy(DeviceAddress address, std::uint64_t bytes, Contents& into) const;
  void keep(PoolIndex pool, Contents contents) { by_pool_[pool] = std::move(contents); }
  /// Copies back what was kept, where is_live(address); what could not be copied stays.
  DriverStatus restore(PoolIndex pool, const std::function<bool(DeviceAddress)>& is_live);
  void forget(PoolIndex pool) { by_pool_.erase(pool); }

 private:
  Driver& driver_;
  DeviceIndex device_;
  std::map<PoolIndex, Contents> by_pool_;
};

}  // namespace gapless
