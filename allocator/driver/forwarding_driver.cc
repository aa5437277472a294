#include "allocator/driver/forwarding_driver.h"

namespace gapless {

DriverStatus ForwardingDriver::device_count(std::int32_t& count) {
  return around(DriverCall::device_count, [&] { return inner_.device_count(count); });
}
DriverStatus ForwardingDriver::device_properties(DeviceIndex device, DeviceProperties& properties) {
  return around(DriverCall::device_properties,
                [&] { return inner_.device_properties(device, properties); });
}
DriverStatus ForwardingDriver::mem_info(DeviceIndex device, MemInfo& info) {
  return around(DriverCall::mem_info, [&] { return inner_.mem_info(device, info); });
}
DriverStatus ForwardingDriver::mem_create(DeviceIndex device, std::uint64_t bytes,
                                          const MemKind& kind, MemHandle& handle) {
  return around(DriverCall::mem_create,
                [&] { return inner_.mem_create(device, bytes, kind, handle); });
}
DriverStatus ForwardingDriver::mem_export(MemHandle handle, ShareType type, SharedHandle& shared) {
  return around(DriverCall::mem_export, [&] { return inner_.mem_export(handle, type, shared); });
}
DriverStatus ForwardingDriver::mem_import(DeviceIndex device, const SharedHandle& shared,
                                          MemHandle& handle) {
  return around(DriverCall::mem_import, [&] { return inner_.mem_import(device, shared, handle); });
}
DriverStatus ForwardingDriver::mem_release(MemHandle handle) {
  return around(DriverCall::mem_release, [&] { return inner_.mem_release(handle); });
}
DriverStatus ForwardingDriver::address_reserve(std::uint64_t bytes, std::uint64_t alignment,
                                               DeviceAddress& address) {
  return around(DriverCall::address_reserve,
                [&] { return inner_.address_reserve(bytes, alignment, address); });
}
DriverStatus ForwardingDriver::address_free(DeviceAddress address, std::uint64_t bytes) {
  return around(DriverCall::address_free, [&] { return inner_.address_free(address, bytes); });
}
DriverStatus ForwardingDriver::mem_map(DeviceAddress address, std::uint64_t bytes,
                                       MemHandle handle) {
  return around(DriverCall::mem_map, [&] { return inner_.mem_map(address, bytes, handle); });
}
DriverStatus ForwardingDriver::mem_unmap(DeviceAddress address, std::uint64_t bytes) {
  return around(DriverCall::mem_unmap, [&] { return inner_.mem_unmap(address, bytes); });
}
DriverStatus ForwardingDriver::mem_set_access(DeviceAddress address, std::uint64_t bytes,
                                              DeviceIndex device) {
  return around(DriverCall::mem_set_access,
                [&] { return inner_.mem_set_access(address, bytes, device); });
}
DriverStatus ForwardingDriver::mem_alloc(DeviceIndex device, std::uint64_t bytes,
                                         DeviceAddress& address) {
  return around(DriverCall::mem_alloc, [&] { return inner_.mem_alloc(device, bytes, address); });
}
DriverStatus ForwardingDriver::mem_free(DeviceIndex device, DeviceAddress address) {
  return around(DriverCall::mem_free, [&] { return inner_.mem_free(device, address); });
}
DriverStatus ForwardingDriver::stream_create(DeviceIndex device, StreamHandle& stream) {
  return around(DriverCall::stream_create, [&] { return inner_.stream_create(device, stream); });
}
DriverStatus ForwardingDriver::stream_destroy(DeviceIndex device, StreamHandle stream) {
  return around(DriverCall::stream_destroy, [&] { return inner_.stream_destroy(device, stream); });
}
DriverStatus ForwardingDriver::stream_synchronize(DeviceIndex device, StreamHandle stream) {
  return around(DriverCall::stream_synchronize,
                [&] { return inner_.stream_synchronize(device, stream); });
}
DriverStatus ForwardingDriver::stream_wait_event(DeviceIndex device, StreamHandle stream,
                                                 EventHandle event) {
  return around(DriverCall::stream_wait_event,
                [&] { return inner_.stream_wait_event(device, stream, event); });
}
DriverStatus ForwardingDriver::stream_is_capturing(DeviceIndex device, StreamHandle stream,
                                                   bool& capturing) {
  return around(DriverCall::stream_is_capturing,
                [&] { return inner_.stream_is_capturing(device, stream, capturing); });
}
DriverStatus ForwardingDriver::stream_capture_point(DeviceIndex device, StreamHandle stream,
                                                    CapturePoint& point) {
  return around(DriverCall::stream_capture_point,
                [&] { return inner_.stream_capture_point(device, stream, point); });
}
DriverStatus ForwardingDriver::graph_node_dependencies(DeviceIndex device, std::uint64_t node,
                                                       std::vector<std::uint64_t>& nodes) {
  return around(DriverCall::graph_node_dependencies,
                [&] { return inner_.graph_node_dependencies(device, node, nodes); });
}
DriverStatus ForwardingDriver::device_synchronize(DeviceIndex device) {
  return around(DriverCall::device_synchronize, [&] { return inner_.device_synchronize(device); });
}
DriverStatus ForwardingDriver::event_create(DeviceIndex device, EventHandle& event) {
  return around(DriverCall::event_create, [&] { return inner_.event_create(device, event); });
}
DriverStatus ForwardingDriver::event_destroy(DeviceIndex device, EventHandle event) {
  return around(DriverCall::event_destroy, [&] { return inner_.event_destroy(device, event); });
}
DriverStatus ForwardingDriver::event_record(DeviceIndex device, EventHandle event,
                                            StreamHandle stream) {
  return around(DriverCall::event_record,
                [&] { return inner_.event_record(device, event, stream); });
}
DriverStatus ForwardingDriver::event_query(DeviceIndex device, EventHandle event) {
  return around(DriverCall::event_query, [&] { return inner_.event_query(device, event); });
}
DriverStatus ForwardingDriver::event_synchronize(DeviceIndex device, EventHandle event) {
  return around(DriverCall::event_synchronize,
                [&] { return inner_.event_synchronize(device, event); });
}
DriverStatus ForwardingDriver::memset_d32(DeviceIndex device, DeviceAddress address,
                                          std::uint32_t value, std::uint64_t count,
                                          StreamHandle stream) {
  return around(DriverCall::memset_d32,
                [&] { return inner_.memset_d32(device, address, value, count, stream); });
}
DriverStatus ForwardingDriver::copy_to_device(DeviceIndex device, DeviceAddress target,
                                              const void* source, std::uint64_t bytes,
                                              StreamHandle stream) {
  return around(DriverCall::copy_to_device,
                [&] { return inner_.copy_to_device(device, target, source, bytes, stream); });
}
DriverStatus ForwardingDriver::copy_to_host(DeviceIndex device, void* target, DeviceAddress source,
                                            std::uint64_t bytes, StreamHandle stream) {
  return around(DriverCall::copy_to_host,
                [&] { return inner_.copy_to_host(device, target, source, bytes, stream); });
}

}  // namespace gapless
