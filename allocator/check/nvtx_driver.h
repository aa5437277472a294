// NvtxDriver: tells NvtxMemory what is mapped through it, and what is touched through it.
//
//   DeviceAllocator -> NvtxDriver (memory()) -> the driver
//
// A mapping is a heap from when the device may touch it until right before it is unmapped. The host
// fills and copies memory that is free (poison, bands, pools that sleep): that is opened for it
// meanwhile, so that the tool does not report us. Calls come with the device's lock held.
#pragma once

#include "allocator/check/nvtx_memory.h"
#include "allocator/driver/forwarding_driver.h"

namespace gapless {

class NvtxDriver final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;

  [[nodiscard]] NvtxMemory& memory() { return memory_; }
  [[nodiscard]] const NvtxMemory& memory() const { return memory_; }

  DriverStatus mem_map(DeviceAddress address, std::uint64_t bytes, MemHandle handle) override;
  DriverStatus mem_unmap(DeviceAddress address, std::uint64_t bytes) override;
  DriverStatus mem_set_access(DeviceAddress address, std::uint64_t bytes,
                              DeviceIndex device) override;
  DriverStatus mem_alloc(DeviceIndex device, std::uint64_t bytes, DeviceAddress& address) override;
  DriverStatus mem_free(DeviceIndex device, DeviceAddress address) override;
  DriverStatus memset_d32(DeviceIndex device, DeviceAddress address, std::uint32_t value,
                          std::uint64_t count, StreamHandle stream) override;
  DriverStatus copy_to_device(DeviceIndex device, DeviceAddress target, const void* source,
                              std::uint64_t bytes, StreamHandle stream) override;
  DriverStatus copy_to_host(DeviceIndex device, void* target, DeviceAddress source,
                            std::uint64_t bytes, StreamHandle stream) override;

 protected:
  DriverStatus around(DriverCall /*kind*/, const Call& call) override { return call(); }

 private:
  /// Runs a call that takes away what is mapped there.
  DriverStatus unmap_by(DeviceAddress address, std::uint64_t bytes, const Call& call);

  NvtxMemory memory_;
};

}  // namespace gapless
