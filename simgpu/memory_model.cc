#include "simgpu/memory_model.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "allocator/base/bytes.h"

namespace gapless::simgpu {
namespace {

// cudaMalloc charges whole pages of this size.
constexpr std::uint64_t kPlainPage = 2 * MiB;
constexpr std::uint64_t kChunk = 64 * KiB;

}  // namespace

std::uint64_t MemoryModel::granularity() const {
  std::uint64_t largest = 1;
  for (const Device& device : devices_) largest = std::max(largest, device.granularity_bytes);
  return largest;
}

// --- handles -----------------------------------------------------------------------------------

DriverStatus MemoryModel::create(DeviceIndex index, std::uint64_t bytes, const MemKind& kind,
                                 MemHandle& handle, std::string& misuse) {
  Device& device = devices_[static_cast<std::size_t>(index)];
  if (device.granularity_bytes == 0) return DriverStatus::not_supported;
  if (bytes == 0 || bytes % device.granularity_bytes != 0) {
    misuse =
        fmt::format("mem_create of {} B: not a multiple of {} B", bytes, device.granularity_bytes);
    return DriverStatus::invalid_value;
  }
  if (kind.on_host) {
    if (device.host_bytes == 0) return DriverStatus::not_supported;
    if (bytes > device.host_bytes - device.used_host_bytes) return DriverStatus::out_of_memory;
    device.used_host_bytes += bytes;
  } else {
    if (bytes > device.free_bytes()) return DriverStatus::out_of_memory;
    device.use(bytes);
  }
  handle = next_handle_++;
  Handle& made = handles_[handle];
  made.device = index;
  made.bytes = bytes;
  made.kind = kind;
  return DriverStatus::ok;
}

DriverStatus MemoryModel::release(MemHandle handle, std::string& misuse) {
  const auto found = handles_.find(handle);
  if (found == handles_.end() || found->second.released) {
    misuse = fmt::format("mem_release of handle {}, which is not held", handle);
    return DriverStatus::invalid_value;
  }
  if (--found->second.held != 0) return DriverStatus::ok;
  found->second.released = true;
  drop_if_unused(handle);
  return DriverStatus::ok;
}

DriverStatus MemoryModel::retain(MemHandle handle) {
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return DriverStatus::invalid_value;
  ++found->second.held;
  found->second.released = false;
  return DriverStatus::ok;
}

void MemoryModel::drop_if_unused(MemHandle handle) {
  const auto found = handles_.find(handle);
  if (!found->second.released || !found->second.mapped_at.empty()) return;
  Device& device = devices_[static_cast<std::size_t>(found->second.device)];
  if (found->second.kind.on_host) {
    device.used_host_bytes -= found->second.bytes;
  } else if (found->second.charged) {
    device.give_back(found->second.bytes);
  }
  if (found->second.shared) shared_.erase(found->second.shared->id());
  handles_.erase(found);
}

void MemoryModel::serve(Handle& handle) {
  if (!handle.served && handle.charged && !handle.kind.on_host) {
    devices_[static_cast<std::size_t>(handle.device)].serve();
  }
  handle.served = true;
}

std::size_t MemoryModel::live_handles() const { return handles_.size() - plain_.used().size(); }

// --- addresses ---------------------------------------------------------------------------------

DriverStatus MemoryModel::reserve(std::uint64_t bytes, std::uint64_t alignment,
                                  DeviceAddress& address, std::string& misuse) {
  const std::uint64_t grain = granularity();
  if (bytes == 0 || bytes % grain != 0 || (alignment & (alignment - 1)) != 0) {
    misuse = fmt::format("address_reserve of {} B with alignment {}", bytes, alignment);
    return DriverStatus::invalid_value;
  }
  // The reservation's end keeps a guard of one granule, so that a run past it is found.
  if (bytes > UINT64_MAX - grain || bytes > address_bytes_) return DriverStatus::out_of_memory;
  const auto place = reservations_.take(bytes, bytes + grain, std::max(alignment, grain));
  if (!place) return DriverStatus::out_of_memory;
  address_bytes_ -= bytes;
  address = *place;
  return DriverStatus::ok;
}

DriverStatus MemoryModel::free_reservation(DeviceAddress address, std::uint64_t bytes,
                                           std::string& misuse) {
  const auto found = reservations_.used().find(address);
  if (found == reservations_.used().end() || found->second != bytes) {
    misuse =
        fmt::format("address_free of {:#x} + {} B, which is not one reservation", address, bytes);
    return DriverStatus::invalid_value;
  }
  if (!mappings_in(address, bytes).empty()) {
    misuse = fmt::format("address_free of {:#x}: memory is still mapped there", address);
    return DriverStatus::invalid_value;
  }
  reservations_.give_back(address);
  address_bytes_ += bytes;
  return DriverStatus::ok;
}

bool MemoryModel::inside_reservation(DeviceAddress address, std::uint64_t bytes) const {
  auto after = reservations_.used().upper_bound(address);
  if (after == reservations_.used().begin()) return false;
  --after;
  return address + bytes <= after->first + after->second;
}

// --- mappings ----------------------------------------------------------------------------------

std::vector<std::pair<DeviceAddress, Mapping>> MemoryModel::mappings_in(DeviceAddress address,
                                                                        std::uint64_t bytes) const {
  std::vector<std::pair<DeviceAddress, Mapping>> found;
  auto at = mappings_.upper_bound(address);
  if (at != mappings_.begin()) {
    const auto before = std::prev(at);
    if (before->first + before->second.bytes > address) at = before;
  }
  for (; at != mappings_.end() && at->first < address + bytes; ++at) found.emplace_back(*at);
  return found;
}

DriverStatus MemoryModel::map(DeviceAddress address, std::uint64_t bytes, MemHandle handle,
                              std::string& misuse) {
  const auto found = handles_.find(handle);
  if (found == handles_.end() || found->second.released) {
    misuse = fmt::format("mem_map of handle {}, which is not held", handle);
    return DriverStatus::invalid_value;
  }
  const std::uint64_t grain = device(found->second.device).granularity_bytes;
  if (bytes != found->second.bytes || address % grain != 0) {
    misuse = fmt::format("mem_map of {} B of handle {} ({} B) at {:#x}", bytes, handle,
                         found->second.bytes, address);
    return DriverStatus::invalid_value;
  }
  if (!inside_reservation(address, bytes)) {
    misuse = fmt::format("mem_map at {:#x}, which is not reserved", address);
    return DriverStatus::invalid_value;
  }
  if (!mappings_in(address, bytes).empty()) {
    misuse = fmt::format("double map: mem_map at {:#x}, where memory is mapped already", address);
    return DriverStatus::invalid_value;
  }
  mappings_[address] = {bytes, handle, 0};
  found->second.mapped_at.push_back(address);
  serve(found->second);
  return DriverStatus::ok;
}

DriverStatus MemoryModel::unmap(DeviceAddress address, std::uint64_t bytes, std::string& misuse) {
  const auto found = mappings_in(address, bytes);
  DeviceAddress expected = address;
  for (const auto& [begin, mapping] : found) {
    if (begin != expected) break;
    expected = begin + mapping.bytes;
  }
  if (found.empty() || expected != address + bytes) {
    misuse =
        fmt::format("partial unmap: {:#x} + {} B is not made of whole mappings", address, bytes);
    return DriverStatus::invalid_value;
  }
  for (const auto& [begin, mapping] : found) {
    mappings_.erase(begin);
    std::erase(handles_.at(mapping.handle).mapped_at, begin);
    drop_if_unused(mapping.handle);
  }
  return DriverStatus::ok;
}

DriverStatus MemoryModel::set_access(DeviceAddress address, std::uint64_t bytes, DeviceIndex device,
                                     std::string& misuse) {
  const auto found = mappings_in(address, bytes);
  DeviceAddress expected = address;
  for (const auto& [begin, mapping] : found) {
    if (begin != expected) break;
    expected = begin + mapping.bytes;
  }
  if (bytes == 0 || expected != address + bytes) {
    misuse = fmt::format("mem_set_access over {:#x} + {} B, which is not mapped as a whole",
                         address, bytes);
    return DriverStatus::invalid_value;
  }
  for (const auto& [begin, mapping] : found) {
    mappings_[begin].access |= std::uint64_t{1} << static_cast<unsigned>(device);
  }
  return DriverStatus::ok;
}

// --- plain allocation --------------------------------------------------------------------------

DriverStatus MemoryModel::alloc(DeviceIndex index, std::uint64_t bytes, DeviceAddress& address,
                                std::string& misuse) {
  Device& device = devices_[static_cast<std::size_t>(index)];
  if (bytes == 0) {
    misuse = "mem_alloc of 0 B";
    return DriverStatus::invalid_value;
  }
  if (bytes > device.free_bytes()) return DriverStatus::out_of_memory;  // align_up might overflow
  const std::uint64_t charged = align_up(bytes, kPlainPage);
  const auto place =
      charged > device.free_bytes() ? std::nullopt : plain_.take(charged, charged, kPlainPage);
  if (!place) return DriverStatus::out_of_memory;
  device.use(charged);
  device.serve();
  address = *place;
  const MemHandle handle = next_handle_++;
  Handle& made = handles_[handle];
  made.device = index;
  made.bytes = charged;
  made.served = true;
  plain_handles_[address] = handle;
  return DriverStatus::ok;
}

DriverStatus MemoryModel::free(DeviceIndex index, DeviceAddress address, std::string& misuse) {
  const auto found = plain_handles_.find(address);
  if (found == plain_handles_.end() || handles_.at(found->second).device != index) {
    misuse = fmt::format("mem_free of {:#x}, which mem_alloc did not give", address);
    return DriverStatus::invalid_value;
  }
  if (handles_.at(found->second).charged) {
    devices_[static_cast<std::size_t>(index)].give_back(plain_.used().at(address));
  }
  plain_.give_back(address);
  handles_.erase(found->second);
  plain_handles_.erase(found);
  return DriverStatus::ok;
}

// --- access ------------------------------------------------------------------------------------

std::optional<std::vector<PhysicalRange>> MemoryModel::resolve(DeviceAddress address,
                                                               std::uint64_t bytes,
                                                               DeviceIndex device,
                                                               std::string& misuse) const {
  std::vector<PhysicalRange> ranges;
  const DeviceAddress end = address + bytes;
  auto plain = plain_handles_.upper_bound(address);
  if (plain != plain_handles_.begin()) {
    --plain;
    const Handle& handle = handles_.at(plain->second);
    if (end <= plain->first + handle.bytes) {
      ranges.push_back({plain->second, address - plain->first, bytes});
      return ranges;
    }
  }
  DeviceAddress at = address;
  for (const auto& [begin, mapping] : mappings_in(address, bytes)) {
    if (begin > at) break;
    if ((mapping.access >> static_cast<unsigned>(device) & 1) == 0) {
      misuse =
          fmt::format("access to {:#x}: mapped, but device {} was given no access", at, device);
      return {};
    }
    const std::uint64_t offset = at - begin;
    const std::uint64_t part = std::min(mapping.bytes - offset, end - at);
    ranges.push_back({mapping.handle, offset, part});
    at += part;
  }
  if (at != end) {
    misuse = fmt::format("access to unmapped memory at {:#x}", at);
    return {};
  }
  return ranges;
}

void MemoryModel::Counted::operator()(unsigned char* bytes) const {
  *kept_bytes -= kChunk;
  delete[] bytes;
}

MemoryModel::Chunk MemoryModel::make_chunk() const {
  *kept_bytes_ += kChunk;
  return {new unsigned char[kChunk](), Counted{kept_bytes_}};
}

// --- between processes ---------------------------------------------------------------------------

std::shared_ptr<SharedContents> MemoryModel::share(MemHandle handle) {
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return nullptr;
  Handle& known = found->second;
  if (known.shared) return known.shared;
  known.shared = SharedContents::make(known.device, known.bytes);
  if (!known.shared) return nullptr;
  for (const auto& [index, chunk] : known.chunks) {
    const std::uint64_t at = index * kChunk;
    std::memcpy(known.shared->data() + at, chunk.get(), std::min(kChunk, known.bytes - at));
  }
  known.chunks.clear();
  serve(known);
  shared_[known.shared->id()] = handle;
  shares_ = true;
  return known.shared;
}

std::optional<MemKind> MemoryModel::kind_of(MemHandle handle) const {
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return {};
  return found->second.kind;
}

std::uint64_t MemoryModel::bytes_of(MemHandle handle) const {
  const auto found = handles_.find(handle);
  return found == handles_.end() || found->second.released ? 0 : found->second.bytes;
}

bool MemoryModel::is_mapped(MemHandle handle) const {
  const auto found = handles_.find(handle);
  return found != handles_.end() && !found->second.mapped_at.empty();
}

MemHandle MemoryModel::shared_handle(std::uint64_t id) const {
  const auto found = shared_.find(id);
  return found == shared_.end() ? 0 : found->second;
}

DriverStatus MemoryModel::import(std::shared_ptr<SharedContents> contents, MemHandle& handle) {
  if (!contents || contents->device() < 0 ||
      static_cast<std::size_t>(contents->device()) >= devices_.size()) {
    return DriverStatus::invalid_value;
  }
  handle = next_handle_++;
  Handle& made = handles_[handle];
  made.device = contents->device();
  made.bytes = contents->bytes();
  made.charged = false;
  made.shared = std::move(contents);
  shares_ = true;
  return DriverStatus::ok;
}

MemHandle MemoryModel::plain_handle(DeviceAddress address) const {
  const auto found = plain_handles_.find(address);
  return found == plain_handles_.end() ? 0 : found->second;
}

DeviceAddress MemoryModel::place_import(MemHandle handle) {
  const std::uint64_t bytes = handles_.at(handle).bytes;
  const DeviceAddress address = plain_.take(bytes, bytes, kPlainPage).value();
  plain_handles_[address] = handle;
  return address;
}

// --- contents ----------------------------------------------------------------------------------

void MemoryModel::write(const PhysicalRange& range, const unsigned char* source) {
  Handle& handle = handles_.at(range.handle);
  if (handle.shared) {
    std::memcpy(handle.shared->data() + range.offset, source, range.bytes);
    return;
  }
  for (std::uint64_t done = 0; done < range.bytes;) {
    const std::uint64_t at = range.offset + done;
    const std::uint64_t part = std::min(kChunk - at % kChunk, range.bytes - done);
    auto& chunk = handle.chunks[at / kChunk];
    if (!chunk) chunk = make_chunk();
    std::memcpy(chunk.get() + at % kChunk, source + done, part);
    done += part;
  }
}

void MemoryModel::read(const PhysicalRange& range, unsigned char* target) const {
  const Handle& handle = handles_.at(range.handle);
  if (handle.shared) {
    std::memcpy(target, handle.shared->data() + range.offset, range.bytes);
    return;
  }
  for (std::uint64_t done = 0; done < range.bytes;) {
    const std::uint64_t at = range.offset + done;
    const std::uint64_t part = std::min(kChunk - at % kChunk, range.bytes - done);
    const auto chunk = handle.chunks.find(at / kChunk);
    if (chunk == handle.chunks.end()) {
      std::memset(target + done, 0, part);
    } else {
      std::memcpy(target + done, chunk->second.get() + at % kChunk, part);
    }
    done += part;
  }
}

void MemoryModel::forget(const PhysicalRange& range) {
  Handle& handle = handles_.at(range.handle);
  if (handle.shared) handle.shared->forget(range.offset, range.bytes);
  if (handle.chunks.empty()) return;
  for (std::uint64_t done = 0; done < range.bytes;) {
    const std::uint64_t at = range.offset + done;
    const std::uint64_t part = std::min(kChunk - at % kChunk, range.bytes - done);
    const auto chunk = handle.chunks.find(at / kChunk);
    if (chunk != handle.chunks.end()) {
      if (part == kChunk) {
        handle.chunks.erase(chunk);
      } else {
        std::memset(chunk->second.get() + at % kChunk, 0, part);
      }
    }
    done += part;
  }
}

bool MemoryModel::has_contents(const PhysicalRange& range) const {
  const Handle& handle = handles_.at(range.handle);
  if (handle.shared) return true;
  if (handle.chunks.empty()) return false;
  for (std::uint64_t chunk = range.offset / kChunk;
       chunk <= (range.offset + range.bytes - 1) / kChunk; ++chunk) {
    if (handle.chunks.contains(chunk)) return true;
  }
  return false;
}

}  // namespace gapless::simgpu
