// The real driver: libcuda.so.1, loaded when first asked for.
//
// Nothing here links against CUDA. open() finds the library with dlopen and its functions with
// cuGetProcAddress, so a program with gapless in it starts on a machine that has no driver and is
// told so in words.
#pragma once

#include <memory>
#include <string>

#include "allocator/driver/driver.h"

namespace gapless {

class CudaDriver final : public Driver {
 public:
  /// Loads libcuda.so.1 and calls cuInit. On failure returns nothing and says why in `error`.
  static std::unique_ptr<CudaDriver> open(std::string& error);
  ~CudaDriver() override;

  DriverStatus device_count(std::int32_t& count) override;
  DriverStatus device_properties(DeviceIndex device, DeviceProperties& properties) override;
  DriverStatus mem_info(DeviceIndex device, MemInfo& info) override;
  using Driver::mem_create;
  DriverStatus mem_create(DeviceIndex device, std::uint64_t bytes, const MemKind& kind,
                          MemHandle& handle) override;
  DriverStatus mem_release(MemHandle handle) override;
  DriverStatus mem_export(MemHandle handle, ShareType type, SharedHandle& shared) override;
  DriverStatus mem_import(DeviceIndex device, const SharedHandle& shared,
                          MemHandle& handle) override;
  DriverStatus address_reserve(std::uint64_t bytes, std::uint64_t alignment,
                               DeviceAddress& address) override;
  DriverStatus address_free(DeviceAddress address, std::uint64_t bytes) override;
  DriverStatus mem_map(DeviceAddress address, std::uint64_t bytes, MemHandle handle) override;
  DriverStatus mem_unmap(DeviceAddress address, std::uint64_t bytes) override;
  DriverStatus mem_set_access(DeviceAddress address, std::uint64_t bytes,
                              DeviceIndex device) override;
  DriverStatus mem_alloc(DeviceIndex device, std::uint64_t bytes, DeviceAddress& address) override;
  DriverStatus mem_free(DeviceIndex device, DeviceAddress address) override;
  DriverStatus stream_create(DeviceIndex device, StreamHandle& stream) override;
  DriverStatus stream_destroy(DeviceIndex device, StreamHandle stream) override;
  DriverStatus stream_synchronize(DeviceIndex device, StreamHandle stream) override;
  DriverStatus stream_wait_event(DeviceIndex device, StreamHandle stream,
                                 EventHandle event) override;
  DriverStatus stream_is_capturing(DeviceIndex device, StreamHandle stream,
                                   bool& capturing) override;
  DriverStatus stream_capture_point(DeviceIndex device, StreamHandle stream,
                                    CapturePoint& point) override;
  DriverStatus graph_node_dependencies(DeviceIndex device, std::uint64_t node,
                                       std::vector<std::uint64_t>& nodes) override;
  DriverStatus device_synchronize(DeviceIndex device) override;
  DriverStatus event_create(DeviceIndex device, EventHandle& event) override;
  DriverStatus event_destroy(DeviceIndex device, EventHandle event) override;
  DriverStatus event_record(DeviceIndex device, EventHandle event, StreamHandle stream) override;
  DriverStatus event_query(DeviceIndex device, EventHandle event) override;
  DriverStatus event_synchronize(DeviceIndex device, EventHandle event) override;
  DriverStatus memset_d32(DeviceIndex device, DeviceAddress address, std::uint32_t value,
                          std::uint64_t count, StreamHandle stream) override;
  DriverStatus copy_to_device(DeviceIndex device, DeviceAddress target, const void* source,
                              std::uint64_t bytes, StreamHandle stream) override;
  DriverStatus copy_to_host(DeviceIndex device, void* target, DeviceAddress source,
                            std::uint64_t bytes, StreamHandle stream) override;
  bool knows_contents(DeviceIndex device, DeviceAddress address, std::uint64_t bytes) override;

 private:
  struct Api;
  struct Contexts;
  class Relaxed;
  CudaDriver(std::unique_ptr<Api> api, std::unique_ptr<Contexts> contexts);

  /// Runs `call` with the device's primary context current, and puts the caller's back.
  template <class F>
  DriverStatus on_device(DeviceIndex device, F&& call);

  std::unique_ptr<Api> api_;
  std::unique_ptr<Contexts> contexts_;
};

}  // namespace gapless
