#include "simgpu/sim_driver.h"

#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

#include "allocator/base/bytes.h"

namespace gapless::simgpu {
namespace {

std::vector<MemoryModel::Device> memory_of(const std::vector<SimDevice>& devices) {
  std::vector<MemoryModel::Device> memory;
  memory.reserve(devices.size());
  for (const SimDevice& device : devices) {
    memory.push_back({.total_bytes = device.total_bytes,
                      .granularity_bytes = device.has_vmm ? device.granularity_bytes : 0,
                      .host_bytes = device.host_bytes});
  }
  return memory;
}

}  // namespace

SimDriver::SimDriver(SimOptions options)
    : options_(std::move(options)),
      timeline_(static_cast<std::int32_t>(options_.devices.size())),
      memory_(memory_of(options_.devices), options_.address_bytes),
      checker_(timeline_) {}

void SimDriver::pay(DriverCall call, std::uint64_t bytes) {
  timeline_.advance(options_.costs.cost_ns(call, bytes));
}

DriverStatus SimDriver::judged(DriverStatus status, const std::string& misuse) {
  if (!misuse.empty()) violations_.push_back(misuse);
  return status;
}

bool SimDriver::known(DeviceIndex device) const {
  return device >= 0 && static_cast<std::size_t>(device) < options_.devices.size();
}

std::optional<std::uint32_t> SimDriver::stream_index(DeviceIndex device, StreamHandle stream,
                                                     std::string_view call) {
  const auto index = timeline_.find_stream(device, stream);
  if (!index) {
    violations_.push_back(
        fmt::format("{} on stream {:#x}, which device {} has not", call, stream, device));
  }
  return index;
}

bool SimDriver::known_event(EventHandle event, std::string_view call) {
  if (timeline_.has_event(event)) return true;
  violations_.push_back(fmt::format("{} of event {:#x}, which does not exist", call, event));
  return false;
}

// --- what a real GPU has not ---------------------------------------------------------------------

std::optional<std::vector<PhysicalRange>> SimDriver::touch(DeviceIndex device, const Access& access,
                                                           const Stamp& stamp) {
  std::string misuse;
  auto ranges = memory_.resolve(access.address, access.bytes, device, misuse);
  if (!ranges) {
    violations_.push_back(misuse);
    return {};
  }
  DeviceAddress at = access.address;
  for (const PhysicalRange& range : *ranges) {
    std::string wrong = checker_.access(range, at, stamp, access.writes);
    if (!wrong.empty()) violations_.push_back(std::move(wrong));
    at += range.bytes;
  }
  for (const auto& [mapping, facts] : memory_.mappings_in(access.address, access.bytes)) {
    checker_.touch_mapping(mapping, stamp);
  }
  return ranges;
}

DriverStatus SimDriver::launch(DeviceIndex device, StreamHandle stream, std::uint64_t duration_ns,
                               std::span<const Access> accesses) {
  const std::scoped_lock lock(mutex_);
  const auto index = stream_index(device, stream, "launch");
  if (!index) return DriverStatus::invalid_handle;
  if (CapturedGraph* graph = capture_of(stream); graph != nullptr) {
    const std::size_t branch = branch_of(*graph, stream);
    graph->steps.push_back({.branch = branch,
                            .after = branch,
                            .duration_ns = duration_ns,
                            .accesses = {accesses.begin(), accesses.end()}});
    return DriverStatus::ok;
  }
  const Stamp stamp = timeline_.submit(*index, duration_ns);
  DriverStatus status = DriverStatus::ok;
  for (const Access& access : accesses) {
    if (access.bytes != 0 && !touch(device, access, stamp)) status = DriverStatus::illegal_address;
  }
  return status;
}

void SimDriver::advance(std::uint64_t ns) {
  const std::scoped_lock lock(mutex_);
  timeline_.advance(ns);
}

std::uint64_t SimDriver::now_ns() const {
  const std::scoped_lock lock(mutex_);
  return timeline_.now_ns();
}

std::uint64_t SimDriver::work_end_ns(DeviceIndex device) const {
  const std::scoped_lock lock(mutex_);
  return timeline_.work_end_ns(device);
}

std::uint64_t SimDriver::work_end_ns(DeviceIndex device, StreamHandle stream) const {
  const std::scoped_lock lock(mutex_);
  const auto index = timeline_.find_stream(device, stream);
  return index ? timeline_.busy_until_ns(*index) : 0;
}

std::vector<std::string> SimDriver::violations() const {
  const std::scoped_lock lock(mutex_);
  return violations_;
}

std::string SimDriver::leaks() const {
  const std::scoped_lock lock(mutex_);
  std::string text;
  const auto add = [&](std::size_t count, const char* what) {
    if (count != 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, what);
  };
  add(memory_.live_handles(), "handles");
  add(memory_.live_mappings(), "mappings");
  add(memory_.live_reservations(), "reservations");
  add(memory_.live_plain(), "plain allocations");
  add(timeline_.live_events(), "events");
  return text;
}

std::uint64_t SimDriver::used_bytes(DeviceIndex device) const {
  const std::scoped_lock lock(mutex_);
  return memory_.device(device).used_bytes;
}

std::uint64_t SimDriver::peak_used_bytes(DeviceIndex device) const {
  const std::scoped_lock lock(mutex_);
  return memory_.device(device).peak_used_bytes;
}

std::vector<std::pair<DeviceAddress, Mapping>> SimDriver::mappings() const {
  const std::scoped_lock lock(mutex_);
  return memory_.mappings_in(0, UINT64_MAX);
}

std::uint64_t SimDriver::bytes_of(MemHandle handle) const {
  const std::scoped_lock lock(mutex_);
  return memory_.bytes_of(handle);
}

bool SimDriver::is_mapped(MemHandle handle) const {
  const std::scoped_lock lock(mutex_);
  return memory_.is_mapped(handle);
}

bool SimDriver::is_on_host(MemHandle handle) const {
  const std::scoped_lock lock(mutex_);
  const auto kind = memory_.kind_of(handle);
  return kind && kind->on_host;
}

std::uint64_t SimDriver::used_host_bytes(DeviceIndex device) const {
  const std::scoped_lock lock(mutex_);
  return memory_.device(device).used_host_bytes;
}

std::optional<std::vector<PhysicalRange>> SimDriver::resolve(DeviceIndex device,
                                                             DeviceAddress address,
                                                             std::uint64_t bytes) const {
  const std::scoped_lock lock(mutex_);
  std::string misuse;
  return memory_.resolve(address, bytes, device, misuse);
}

// --- devices -----------------------------------------------------------------------------------

DriverStatus SimDriver::device_count(std::int32_t& count) {
  count = static_cast<std::int32_t>(options_.devices.size());
  return DriverStatus::ok;
}

DriverStatus SimDriver::device_properties(DeviceIndex device, DeviceProperties& properties) {
  if (!known(device)) return DriverStatus::invalid_device;
  const SimDevice& facts = options_.devices[static_cast<std::size_t>(device)];
  properties = {.name = facts.name,
                .total_bytes = facts.total_bytes,
                .has_vmm = facts.has_vmm,
                .granularity_bytes = facts.has_vmm ? facts.granularity_bytes : 0,
                .can_share_fd = facts.has_vmm,
                .can_share_fabric = facts.has_vmm && facts.has_fabric,
                .can_map_host = facts.has_vmm && facts.host_bytes != 0,
                .compute_major = facts.compute_major,
                .compute_minor = facts.compute_minor};
  return DriverStatus::ok;
}

DriverStatus SimDriver::mem_info(DeviceIndex device, MemInfo& info) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::mem_info);
  if (!known(device)) return DriverStatus::invalid_device;
  const MemoryModel::Device& memory = memory_.device(device);
  info = {memory.total_bytes - memory.used_bytes, memory.total_bytes};
  return DriverStatus::ok;
}

// --- memory ------------------------------------------------------------------------------------

DriverStatus SimDriver::mem_create(DeviceIndex device, std::uint64_t bytes, const MemKind& kind,
                                   MemHandle& handle) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::mem_create, bytes);
  if (!known(device)) return DriverStatus::invalid_device;
  std::string misuse;
  if (kind.share == ShareType::fabric &&
      !options_.devices[static_cast<std::size_t>(device)].has_fabric) {
    return DriverStatus::not_supported;
  }
  const DriverStatus status = memory_.create(device, bytes, kind, handle, misuse);
  return judged(status, misuse);
}

DriverStatus SimDriver::mem_release(MemHandle handle) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::mem_release);
  std::string misuse;
  const DriverStatus status = memory_.release(handle, misuse);
  return judged(status, misuse);
}

DriverStatus SimDriver::mem_export(MemHandle handle, ShareType type, SharedHandle& shared) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::mem_export);
  const auto kind = memory_.kind_of(handle);
  if (!kind || type == ShareType::none || kind->share != type) {
    return judged(DriverStatus::invalid_value,
                  fmt::format("mem_export of handle {}, which is not made for that", handle));
  }
  const auto contents = memory_.share(handle);
  if (!contents) return DriverStatus::unknown;
  SharedHandle made{.type = type};
  if (type == ShareType::fd) {
    made.fd = fcntl(contents->file(), F_DUPFD_CLOEXEC, 0);
    if (made.fd < 0) return DriverStatus::unknown;
  } else {
    const std::uint64_t id = contents->id();
    std::memcpy(made.fabric.data(), &id, sizeof id);
  }
  shared = made;
  return DriverStatus::ok;
}

DriverStatus SimDriver::mem_import(DeviceIndex device, const SharedHandle& shared,
                                   MemHandle& handle) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::mem_import);
  if (!known(device)) return DriverStatus::invalid_device;
  std::uint64_t id = 0;
  std::shared_ptr<SharedContents> contents;
  if (shared.type == ShareType::fd) {
    contents = SharedContents::open(shared.fd);
    if (contents) id = contents->id();
  } else if (shared.type == ShareType::fabric) {
    std::memcpy(&id, shared.fabric.data(), sizeof id);
  }
  // Its own memory is the same memory, to the judge too.
  if (const MemHandle own = memory_.shared_handle(id); own != 0) {
    const DriverStatus status = memory_.retain(own);
    if (status == DriverStatus::ok) handle = own;
    return status;
  }
  return memory_.import(contents, handle);
}

DriverStatus SimDriver::address_reserve(std::uint64_t bytes, std::uint64_t alignment,
                                        DeviceAddress& address) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::address_reserve, bytes);
  std::string misuse;
  const DriverStatus status = memory_.reserve(bytes, alignment, address, misuse);
  return judged(status, misuse);
}

DriverStatus SimDriver::address_free(DeviceAddress address, std::uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::address_free, bytes);
  std::string misuse;
  const DriverStatus status = memory_.free_reservation(address, bytes, misuse);
  return judged(status, misuse);
}

DriverStatus SimDriver::mem_map(DeviceAddress address, std::uint64_t bytes, MemHandle handle) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::mem_map, bytes);
  std::string misuse;
  const DriverStatus status = memory_.map(address, bytes, handle, misuse);
  return judged(status, misuse);
}

DriverStatus SimDriver::mem_unmap(DeviceAddress address, std::uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::mem_unmap, bytes);
  const auto mappings = memory_.mappings_in(address, bytes);
  std::string misuse;
  const DriverStatus status = memory_.unmap(address, bytes, misuse);
  if (status == DriverStatus::ok) {
    for (const auto& [begin, mapping] : mappings) {
      if (checker_.in_flight(begin)) {
        violations_.push_back(fmt::format("unmap under running work at {:#x}", begin));
      }
      checker_.forget_mapping(begin);
    }
  }
  return judged(status, misuse);
}

DriverStatus SimDriver::mem_set_access(DeviceAddress address, std::uint64_t bytes,
                                       DeviceIndex device) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::mem_set_access, bytes);
  if (!known(device)) return DriverStatus::invalid_device;
  std::string misuse;
  const DriverStatus status = memory_.set_access(address, bytes, device, misuse);
  return judged(status, misuse);
}

DriverStatus SimDriver::mem_alloc(DeviceIndex device, std::uint64_t bytes, DeviceAddress& address) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::mem_alloc, bytes);
  if (!known(device)) return DriverStatus::invalid_device;
  std::string misuse;
  const DriverStatus status = memory_.alloc(device, bytes, address, misuse);
  return judged(status, misuse);
}

DriverStatus SimDriver::mem_free(DeviceIndex device, DeviceAddress address) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::mem_free);
  if (!known(device)) return DriverStatus::invalid_device;
  (void)may_wait("mem_free");
  timeline_.synchronize_device(device);
  std::string misuse;
  const DriverStatus status = memory_.free(device, address, misuse);
  return judged(status, misuse);
}

// --- streams and events ------------------------------------------------------------------------

DriverStatus SimDriver::stream_create(DeviceIndex device, StreamHandle& stream) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::stream_create);
  if (!known(device)) return DriverStatus::invalid_device;
  stream = timeline_.create_stream(device);
  return DriverStatus::ok;
}

DriverStatus SimDriver::stream_destroy(DeviceIndex device, StreamHandle stream) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::stream_destroy);
  if (!stream_index(device, stream, "stream_destroy") || stream == 0) {
    return DriverStatus::invalid_handle;
  }
  timeline_.destroy_stream(stream);
  return DriverStatus::ok;
}

DriverStatus SimDriver::stream_synchronize(DeviceIndex device, StreamHandle stream) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::stream_synchronize);
  const auto index = stream_index(device, stream, "stream_synchronize");
  if (!index) return DriverStatus::invalid_handle;
  if (!may_wait("stream_synchronize", stream)) return DriverStatus::capture_unsupported;
  timeline_.synchronize_stream(*index);
  return DriverStatus::ok;
}

DriverStatus SimDriver::stream_wait_event(DeviceIndex device, StreamHandle stream,
                                          EventHandle event) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::stream_wait_event);
  const auto index = stream_index(device, stream, "stream_wait_event");
  if (!index || !known_event(event, "stream_wait_event")) return DriverStatus::invalid_handle;
  if (capture_of(stream) != nullptr) {
    violations_.push_back(
        fmt::format("stream_wait_event on stream {:#x}, which is capturing", stream));
    return DriverStatus::capture_isolation;
  }
  timeline_.wait_event(*index, event);
  return DriverStatus::ok;
}

DriverStatus SimDriver::device_synchronize(DeviceIndex device) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::device_synchronize);
  if (!known(device)) return DriverStatus::invalid_device;
  (void)may_wait("device_synchronize");
  timeline_.synchronize_device(device);
  return DriverStatus::ok;
}

DriverStatus SimDriver::event_create(DeviceIndex device, EventHandle& event) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::event_create);
  if (!known(device)) return DriverStatus::invalid_device;
  event = timeline_.create_event(device);
  return DriverStatus::ok;
}

DriverStatus SimDriver::event_destroy(DeviceIndex /*device*/, EventHandle event) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::event_destroy);
  if (!known_event(event, "event_destroy")) return DriverStatus::invalid_handle;
  timeline_.destroy_event(event);
  captured_.erase(event);
  return DriverStatus::ok;
}

DriverStatus SimDriver::event_record(DeviceIndex device, EventHandle event, StreamHandle stream) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::event_record);
  const auto index = stream_index(device, stream, "event_record");
  if (!index || !known_event(event, "event_record")) return DriverStatus::invalid_handle;
  if (capture_of(stream) != nullptr) {
    violations_.push_back(fmt::format("event_record on stream {:#x}, which is capturing", stream));
    captured_.insert(event);
    return DriverStatus::ok;
  }
  captured_.erase(event);
  if (const DeviceIndex made_on = timeline_.device_of_event(event); made_on != device) {
    violations_.push_back(
        fmt::format("event_record of device {}'s event on a stream of device {}", made_on, device));
    return DriverStatus::invalid_handle;
  }
  timeline_.record(event, *index);
  return DriverStatus::ok;
}

DriverStatus SimDriver::event_query(DeviceIndex /*device*/, EventHandle event) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::event_query);
  if (!known_event(event, "event_query")) return DriverStatus::invalid_handle;
  if (captured_.contains(event)) return DriverStatus::captured_event;
  return timeline_.query(event) ? DriverStatus::ok : DriverStatus::not_ready;
}

DriverStatus SimDriver::event_synchronize(DeviceIndex /*device*/, EventHandle event) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::event_synchronize);
  if (!known_event(event, "event_synchronize")) return DriverStatus::invalid_handle;
  if (captured_.contains(event)) return DriverStatus::captured_event;
  timeline_.synchronize_event(event);
  return DriverStatus::ok;
}

// --- contents ----------------------------------------------------------------------------------

DriverStatus SimDriver::memset_d32(DeviceIndex device, DeviceAddress address, std::uint32_t value,
                                   std::uint64_t count, StreamHandle stream) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::memset_d32, count * 4);
  const auto index = stream_index(device, stream, "memset_d32");
  if (!index) return DriverStatus::invalid_handle;
  const Access access{address, count * 4, true};
  if (CapturedGraph* graph = capture_of(stream); graph != nullptr) {
    const std::size_t branch = branch_of(*graph, stream);
    graph->steps.push_back(
        {.branch = branch, .after = branch, .accesses = {access}, .fills_with = value});
    return DriverStatus::ok;
  }
  const auto ranges = touch(device, access, timeline_.submit(*index, 0));
  if (!ranges) return DriverStatus::invalid_value;
  write_words(*ranges, value);
  return DriverStatus::ok;
}

void SimDriver::write_words(const std::vector<PhysicalRange>& ranges, std::uint32_t value) {
  if (!options_.keep_contents) return;
  for (const PhysicalRange& range : ranges) {
    const std::vector<std::uint32_t> words(range.bytes / 4, value);
    memory_.write(range, reinterpret_cast<const unsigned char*>(words.data()));
  }
}

DriverStatus SimDriver::copy_to_device(DeviceIndex device, DeviceAddress target, const void* source,
                                       std::uint64_t bytes, StreamHandle stream) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::copy_to_device, bytes);
  const auto index = stream_index(device, stream, "copy_to_device");
  if (!index) return DriverStatus::invalid_handle;
  const auto ranges = touch(device, {target, bytes, true}, timeline_.submit(*index, 0));
  if (!ranges) return DriverStatus::invalid_value;
  const auto* from = static_cast<const unsigned char*>(source);
  for (const PhysicalRange& range : *ranges) {
    if (options_.keep_contents) memory_.write(range, from);
    from += range.bytes;
  }
  timeline_.synchronize_stream(*index);
  return DriverStatus::ok;
}

DriverStatus SimDriver::copy_to_host(DeviceIndex device, void* target, DeviceAddress source,
                                     std::uint64_t bytes, StreamHandle stream) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::copy_to_host, bytes);
  const auto index = stream_index(device, stream, "copy_to_host");
  if (!index) return DriverStatus::invalid_handle;
  const auto ranges = touch(device, {source, bytes, false}, timeline_.submit(*index, 0));
  if (!ranges) return DriverStatus::invalid_value;
  auto* to = static_cast<unsigned char*>(target);
  for (const PhysicalRange& range : *ranges) {
    if (options_.keep_contents) {
      memory_.read(range, to);
    } else {
      std::memset(to, 0, range.bytes);
    }
    to += range.bytes;
  }
  timeline_.synchronize_stream(*index);
  return DriverStatus::ok;
}

}  // namespace gapless::simgpu
