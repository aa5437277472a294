#include "allocator/check/nvtx_driver.h"

namespace gapless {

DriverStatus NvtxDriver::mem_map(DeviceAddress address, std::uint64_t bytes, MemHandle handle) {
  const DriverStatus status = ForwardingDriver::mem_map(address, bytes, handle);
  if (status == DriverStatus::ok) memory_.note_mapped(address, bytes);
  return status;
}

DriverStatus NvtxDriver::mem_set_access(DeviceAddress address, std::uint64_t bytes,
                                        DeviceIndex device) {
  const DriverStatus status = ForwardingDriver::mem_set_access(address, bytes, device);
  if (status == DriverStatus::ok) memory_.note_access(address, bytes);
  return status;
}

DriverStatus NvtxDriver::unmap_by(DeviceAddress address, std::uint64_t bytes, const Call& call) {
  // Before, since a tool drops heaps by itself whose memory goes.
  memory_.hide(address, bytes);
  const DriverStatus status = call();
  if (status == DriverStatus::ok) {
    memory_.note_unmapped(address, bytes);
  } else {
    memory_.show(address, bytes);
  }
  return status;
}

DriverStatus NvtxDriver::mem_unmap(DeviceAddress address, std::uint64_t bytes) {
  return unmap_by(address, bytes, [&] { return ForwardingDriver::mem_unmap(address, bytes); });
}

DriverStatus NvtxDriver::mem_alloc(DeviceIndex device, std::uint64_t bytes,
                                   DeviceAddress& address) {
  const DriverStatus status = ForwardingDriver::mem_alloc(device, bytes, address);
  if (status != DriverStatus::ok) return status;
  memory_.note_mapped(address, bytes);
  memory_.note_access(address, bytes);
  return status;
}

DriverStatus NvtxDriver::mem_free(DeviceIndex device, DeviceAddress address) {
  const auto free = [&] { return ForwardingDriver::mem_free(device, address); };
  const std::uint64_t bytes = memory_.mapped_bytes(address);
  return bytes == 0 ? free() : unmap_by(address, bytes, free);
}

DriverStatus NvtxDriver::memset_d32(DeviceIndex device, DeviceAddress address, std::uint32_t value,
                                    std::uint64_t count, StreamHandle stream) {
  const auto opened = memory_.open(address, count * sizeof value);
  return ForwardingDriver::memset_d32(device, address, value, count, stream);
}

DriverStatus NvtxDriver::copy_to_device(DeviceIndex device, DeviceAddress target,
                                        const void* source, std::uint64_t bytes,
                                        StreamHandle stream) {
  const auto opened = memory_.open(target, bytes);
  return ForwardingDriver::copy_to_device(device, target, source, bytes, stream);
}

DriverStatus NvtxDriver::copy_to_host(DeviceIndex device, void* target, DeviceAddress source,
                                      std::uint64_t bytes, StreamHandle stream) {
  const auto opened = memory_.open(source, bytes);
  return ForwardingDriver::copy_to_host(device, target, source, bytes, stream);
}

}  // namespace gapless
