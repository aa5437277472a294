// Access of other devices to this one's memory: with virtual memory management each mapping says
// which devices may touch it, so a peer that comes later is given access to all there is.
#include "allocator/device/device_heap.h"

namespace gapless {

DriverStatus WindowMapper::add_peer(DeviceIndex peer) {
  DriverStatus status = DriverStatus::ok;
  const auto give = [&](WindowId, const Window& window) {
    for (std::uint32_t begin = 0; begin < window.pages.size();) {
      std::uint32_t end = begin;
      while (end < window.pages.size() && window.pages[end] != kNoPage) ++end;
      if (end > begin && status == DriverStatus::ok) {
        status = space_.give_access(window.address + begin * page_bytes_,
                                    (end - begin) * page_bytes_, peer);
      }
      begin = end + 1;
    }
  };
  windows_.for_each(give);
  if (status == DriverStatus::ok) space_.add_peer(peer);
  return status;
}

DriverStatus DeviceHeap::add_peer(DeviceIndex peer) {
  if (!vmm_) return DriverStatus::ok;  // the driver's own contexts say who may touch it
  DriverStatus status = home_mapper_.give_access(peer);
  if (status == DriverStatus::ok) status = mapper_.add_peer(peer);
  if (status == DriverStatus::ok) home_mapper_.note_peer(peer);
  return status;
}

}  // namespace gapless
