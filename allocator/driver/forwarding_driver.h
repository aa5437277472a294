// The base of decorators: every call goes to the driver inside, past one hook.
//
//   FaultyDriver -> CountingDriver -> SimDriver
//
// A decorator overrides around(), which is told the kind of each call and runs it (or does not).
#pragma once

#include <functional>

#include "allocator/driver/call.h"
#include "allocator/driver/driver.h"

namespace gapless {

class ForwardingDriver : public Driver {
 public:
  /// `inner` must outlive this.
  explicit ForwardingDriver(Driver& inner) : inner_(inner) {}

  DriverStatus device_count(std::int32_t& count) final;
  DriverStatus device_properties(DeviceIndex device, DeviceProperties& properties) final;
  DriverStatus mem_info(DeviceIndex device, MemInfo& info) final;
  using Driver::mem_create;
  DriverStatus mem_create(DeviceIndex device, std::uint64_t bytes, const MemKind& kind,
                          MemHandle& handle) final;
  DriverStatus mem_release(MemHandle handle) final;
  DriverStatus mem_export(MemHandle handle, ShareType type, SharedHandle& shared) final;
  DriverStatus mem_import(DeviceIndex device, const SharedHandle& shared, MemHandle& handle) final;
  DriverStatus address_reserve(std::uint64_t bytes, std::uint64_t alignment,
                               DeviceAddress& address) final;
  DriverStatus address_free(DeviceAddress address, std::uint64_t bytes) final;
  DriverStatus mem_map(DeviceAddress address, std::uint64_t bytes, MemHandle handle) override;
  DriverStatus mem_unmap(DeviceAddress address, std::uint64_t bytes) override;
  DriverStatus mem_set_access(DeviceAddress address, std::uint64_t bytes,
                              DeviceIndex device) override;
  DriverStatus mem_alloc(DeviceIndex device, std::uint64_t bytes, DeviceAddress& address) override;
  DriverStatus mem_free(DeviceIndex device, DeviceAddress address) override;
  DriverStatus stream_create(DeviceIndex device, StreamHandle& stream) final;
  DriverStatus stream_destroy(DeviceIndex device, StreamHandle stream) final;
  DriverStatus stream_synchronize(DeviceIndex device, StreamHandle stream) final;
  DriverStatus stream_wait_event(DeviceIndex device, StreamHandle stream, EventHandle event) final;
  DriverStatus stream_is_capturing(DeviceIndex device, StreamHandle stream, bool& capturing) final;
  DriverStatus stream_capture_point(DeviceIndex device, StreamHandle stream,
                                    CapturePoint& point) final;
  DriverStatus graph_node_dependencies(DeviceIndex device, std::uint64_t node,
                                       std::vector<std::uint64_t>& nodes) final;
  DriverStatus device_synchronize(DeviceIndex device) final;
  DriverStatus event_create(DeviceIndex device, EventHandle& event) final;
  DriverStatus event_destroy(DeviceIndex device, EventHandle event) final;
  DriverStatus event_record(DeviceIndex device, EventHandle event, StreamHandle stream) final;
  DriverStatus event_query(DeviceIndex device, EventHandle event) final;
  DriverStatus event_synchronize(DeviceIndex device, EventHandle event) final;
  DriverStatus memset_d32(DeviceIndex device, DeviceAddress address, std::uint32_t value,
                          std::uint64_t count, StreamHandle stream) override;
  DriverStatus copy_to_device(DeviceIndex device, DeviceAddress target, const void* source,
                              std::uint64_t bytes, StreamHandle stream) override;
  DriverStatus copy_to_host(DeviceIndex device, void* target, DeviceAddress source,
                            std::uint64_t bytes, StreamHandle stream) override;
  bool knows_contents(DeviceIndex device, DeviceAddress address, std::uint64_t bytes) final {
    return inner_.knows_contents(device, address, bytes);
  }

 protected:
  using Call = std::function<DriverStatus()>;
  /// Runs `call`, or answers in its place.
  virtual DriverStatus around(DriverCall kind, const Call& call) = 0;

 private:
  Driver& inner_;
};

}  // namespace gapless
