#include "simgpu/process/device_memory.h"

#include <algorithm>
#include <cstring>

#include "allocator/base/bytes.h"

namespace gapless::simgpu {
namespace {

constexpr std::uint64_t kSlab = 2 * MiB;
constexpr std::uint64_t kGrain = 512;
// Host memory for contents: for large copies, and for those up to 1 MiB.
constexpr std::uint64_t kSmallCopy = 1 * MiB;
constexpr std::uint64_t kKeptForLarge = 64 * MiB;
constexpr std::uint64_t kKeptForSmall = 512 * MiB;
// Of a copy that is too large, so much is kept: programs look at the first number of a table to see
// whether it is there.
constexpr std::uint64_t kHead = 4096;

std::vector<MemoryModel::Device> devices_of(const Config& config, SharedUsage& usage,
                                            const DeviceMemory::OnUse& on_use) {
  std::vector<MemoryModel::Device> devices;
  for (std::size_t i = 0; i < config.gpus.size(); ++i) {
    MemoryModel::Device device;
    device.total_bytes = config.gpus[i].total_bytes;
    device.granularity_bytes = 2 * MiB;
    const int installed = config.installed_index[i];
    if (!config.shared_file.empty()) {
      device.used_elsewhere = [&usage, installed] { return usage.of_others(installed); };
    }
    device.on_change = [&usage, installed](std::uint64_t bytes) {
      usage.publish(installed, bytes);
    };
    device.on_served = [on_use, index = static_cast<DeviceIndex>(i)](std::uint64_t bytes) {
      if (on_use && bytes != 0) on_use(index, bytes);
    };
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace

DeviceMemory::DeviceMemory(const Config& config, const OnUse& on_use)
    : gpus_(config.gpus),
      usage_(config.shared_file),
      model_(devices_of(config, usage_, on_use)),
      contexts_(config.gpus.size(), false) {}

void DeviceMemory::ensure_context(DeviceIndex device) {
  const auto index = static_cast<std::size_t>(device);
  if (contexts_[index]) return;
  contexts_[index] = true;
  model_.charge(device, gpus_[index].context_bytes);
}

std::uint64_t DeviceMemory::free_bytes(DeviceIndex device) const {
  return model_.device(device).free_bytes();
}

std::uint64_t DeviceMemory::total_bytes(DeviceIndex device) const {
  return model_.device(device).total_bytes;
}

// --- cudaMalloc ----------------------------------------------------------------------------------

DriverStatus DeviceMemory::alloc(DeviceIndex device, std::uint64_t bytes, DeviceAddress& address) {
  std::string misuse;
  if (bytes >= kSlab) {
    const DriverStatus status = model_.alloc(device, bytes, address, misuse);
    if (status == DriverStatus::ok) plain_[address] = {address, bytes, device, false};
    return status;
  }
  const std::uint64_t size = align_up(std::max<std::uint64_t>(bytes, 1), kGrain);
  for (auto& [base, slab] : slabs_) {
    if (slab.device != device) continue;
    std::uint64_t at = 0;
    for (const auto& [offset, used] : slab.used) {
      if (offset - at >= size) break;
      at = offset + used;
    }
    if (at + size > kSlab) continue;
    slab.used[at] = size;
    address = base + at;
    return DriverStatus::ok;
  }
  DeviceAddress base = 0;
  const DriverStatus status = model_.alloc(device, kSlab, base, misuse);
  if (status != DriverStatus::ok) return status;
  plain_[base] = {base, kSlab, device, false};
  slabs_[base] = {device, {{0, size}}};
  address = base;
  return DriverStatus::ok;
}

DriverStatus DeviceMemory::free(DeviceAddress address) {
  std::string misuse;
  if (!known_.empty()) {
    if (const auto span = find(address)) known_.set(span->begin, span->bytes, Knowledge::none);
  }
  auto slab = slabs_.upper_bound(address);
  if (slab != slabs_.begin() && address < std::prev(slab)->first + kSlab) {
    --slab;
    const DeviceAddress base = slab->first;
    if (slab->second.used.erase(address - base) == 0) return DriverStatus::invalid_value;
    if (!slab->second.used.empty()) return DriverStatus::ok;
    const DeviceIndex device = slab->second.device;
    slabs_.erase(slab);
    plain_.erase(base);
    return model_.free(device, base, misuse);
  }
  const auto found = plain_.find(address);
  if (found == plain_.end()) return DriverStatus::invalid_value;
  const DeviceIndex device = found->second.device;
  plain_.erase(found);
  return model_.free(device, address, misuse);
}

DeviceAddress DeviceMemory::open_shared(std::shared_ptr<SharedContents> contents) {
  MemHandle handle = 0;
  const std::uint64_t bytes = contents ? contents->bytes() : 0;
  if (model_.import(std::move(contents), handle) != DriverStatus::ok) return 0;
  const DeviceAddress address = model_.place_import(handle);
  plain_[address] = {address, bytes, model_.device_of(handle), false};
  return address;
}

std::shared_ptr<SharedContents> DeviceMemory::share(DeviceAddress address, std::uint64_t& offset) {
  auto plain = plain_.upper_bound(address);  // slabs are in it too
  if (plain == plain_.begin()) return nullptr;
  --plain;
  if (address >= plain->first + plain->second.bytes) return nullptr;
  offset = address - plain->first;
  return model_.share(model_.plain_handle(plain->first));
}

std::optional<DeviceMemory::Span> DeviceMemory::find(DeviceAddress address) const {
  if (auto slab = slabs_.upper_bound(address);
      slab != slabs_.begin() && address < std::prev(slab)->first + kSlab) {
    --slab;
    auto used = slab->second.used.upper_bound(address - slab->first);
    if (used == slab->second.used.begin()) return {};
    --used;
    if (address - slab->first >= used->first + used->second) return {};
    return Span{slab->first + used->first, used->second, slab->second.device, false};
  }
  if (auto plain = plain_.upper_bound(address); plain != plain_.begin()) {
    --plain;
    if (address < plain->second.begin + plain->second.bytes) return plain->second;
  }
  const auto mapped = model_.mappings_in(address, 1);
  if (mapped.empty()) return {};
  const auto& [begin, mapping] = mapped.front();
  return Span{begin, mapping.bytes, model_.device_of(mapping.handle), true};
}

// --- contents ------------------------------------------------------------------------------------

std::optional<std::vector<PhysicalRange>> DeviceMemory::resolve(DeviceAddress address,
                                                                std::uint64_t bytes) const {
  std::string misuse;
  for (std::size_t device = 0; device < gpus_.size(); ++device) {
    if (auto ranges = model_.resolve(address, bytes, static_cast<DeviceIndex>(device), misuse)) {
      return ranges;
    }
  }
  return {};
}

bool DeviceMemory::may_keep(std::uint64_t bytes) const {
  return model_.kept_bytes() + bytes <= (bytes <= kSmallCopy ? kKeptForSmall : kKeptForLarge);
}

bool DeviceMemory::may_keep_head(std::uint64_t bytes) const {
  return bytes > kHead && may_keep(kHead);
}

template <class Act>
void DeviceMemory::each_alias(DeviceAddress address, const std::vector<PhysicalRange>& ranges,
                              Act act) const {
  std::uint64_t offset = 0;
  for (const PhysicalRange& range : ranges) {
    if (const auto* const addresses = model_.aliases(range.handle)) {
      for (const DeviceAddress elsewhere : *addresses) {
        if (elsewhere + range.offset != address + offset) {
          act(elsewhere + range.offset, offset, range.bytes);
        }
      }
    }
    offset += range.bytes;
  }
}

void DeviceMemory::set_known(DeviceAddress address, std::uint64_t bytes,
                             const std::vector<PhysicalRange>& ranges, Knowledge knowledge) {
  known_.set(address, bytes, knowledge);
  each_alias(address, ranges, [&](DeviceAddress elsewhere, std::uint64_t, std::uint64_t part) {
    known_.set(elsewhere, part, knowledge);
  });
}

void DeviceMemory::copy_known(DeviceAddress target, DeviceAddress source, std::uint64_t bytes,
                              const std::vector<PhysicalRange>& ranges) {
  known_.copy(target, source, bytes);
  each_alias(target, ranges,
             [&](DeviceAddress elsewhere, std::uint64_t offset, std::uint64_t part) {
               known_.copy(elsewhere, target + offset, part);
             });
}

void DeviceMemory::weaken(DeviceAddress address, std::uint64_t bytes, Knowledge knowledge) {
  if (!knows(address, bytes)) return;
  if (const auto ranges = resolve(address, bytes)) set_known(address, bytes, *ranges, knowledge);
}

bool DeviceMemory::write(DeviceAddress target, const void* source, std::uint64_t bytes,
                         Knowledge knowledge) {
  const auto ranges = resolve(target, bytes);
  if (!ranges) return false;
  const auto* from = static_cast<const unsigned char*>(source);
  const bool keep = may_keep(bytes);
  if (keep) ever_kept_.store(true, std::memory_order_relaxed);
  set_known(target, bytes, *ranges, keep ? knowledge : Knowledge::none);
  for (const PhysicalRange& range : *ranges) {
    model_.forget(range);
    if (keep) model_.write(range, from);
    from += range.bytes;
  }
  return keep || !may_keep_head(bytes) || write(target, source, kHead, knowledge);
}

bool DeviceMemory::read(void* target, DeviceAddress source, std::uint64_t bytes) const {
  const auto ranges = resolve(source, bytes);
  if (!ranges) return false;
  auto* to = static_cast<unsigned char*>(target);
  for (const PhysicalRange& range : *ranges) {
    model_.read(range, to);
    to += range.bytes;
  }
  return true;
}

Knowledge DeviceMemory::knowledge(DeviceAddress address, std::uint64_t bytes) const {
  const Knowledge here = known_.least(address, bytes);
  if (here != Knowledge::none || !model_.shares()) return here;
  // What other processes write is not seen from here, but its contents are.
  const auto ranges = resolve(address, bytes);
  const bool shared =
      ranges && std::all_of(ranges->begin(), ranges->end(), [&](const PhysicalRange& range) {
        return model_.is_shared(range.handle);
      });
  return shared ? Knowledge::likely : Knowledge::none;
}

Knowledge DeviceMemory::flag_known(DeviceAddress numbers, std::uint64_t size, std::uint64_t count,
                                   Knowledge wanted, unsigned char* flags) const {
  const Knowledge least = knowledge(numbers, count * size);
  if (least >= wanted || count <= 1 || !knows_any_of(numbers, count * size)) {
    std::fill_n(flags, count, least >= wanted ? 1 : 0);
    return least >= wanted ? least : Knowledge::known;
  }
  const std::uint64_t half = count / 2;
  return std::min(flag_known(numbers, size, half, wanted, flags),
                  flag_known(numbers + half * size, size, count - half, wanted, flags + half));
}

bool DeviceMemory::copy(DeviceAddress target, DeviceAddress source, std::uint64_t bytes) {
  const auto to = resolve(target, bytes);
  const auto from = resolve(source, bytes);
  if (!to || !from) return false;
  const bool kept = std::any_of(from->begin(), from->end(), [&](const PhysicalRange& range) {
    return model_.has_contents(range);
  });
  if (!kept || !may_keep(bytes)) {
    for (const PhysicalRange& range : *to) model_.forget(range);
    if (kept) {
      set_known(target, bytes, *to, Knowledge::none);
    } else {
      copy_known(target, source, bytes, *to);  // zeros
    }
    return !kept || !may_keep_head(bytes) || copy(target, source, kHead);
  }
  std::vector<unsigned char> buffer(bytes);
  if (!read(buffer.data(), source, bytes)) return false;
  copy_known(target, source, bytes, *to);
  const auto* bytes_read = buffer.data();
  for (const PhysicalRange& range : *to) {
    model_.forget(range);
    model_.write(range, bytes_read);
    bytes_read += range.bytes;
  }
  return true;
}

void DeviceMemory::forget(DeviceAddress address, std::uint64_t bytes) {
  // Where nothing is known there is nothing to forget: zeros are known where nothing is kept.
  if (known_.empty() && model_.kept_bytes() == 0) return;
  const auto ranges = resolve(address, bytes);
  if (!ranges) {
    known_.set(address, bytes, Knowledge::none);
  } else {
    set_known(address, bytes, *ranges, Knowledge::none);
    for (const PhysicalRange& range : *ranges) model_.forget(range);
  }
}

bool DeviceMemory::fill(DeviceAddress target, std::uint32_t value, std::uint32_t width,
                        std::uint64_t bytes) {
  const auto ranges = resolve(target, bytes);
  if (!ranges) return false;
  if (value == 0 || !may_keep(bytes)) {
    for (const PhysicalRange& range : *ranges) model_.forget(range);
    set_known(target, bytes, *ranges, value == 0 ? Knowledge::known : Knowledge::none);
    ever_kept_.store(true, std::memory_order_relaxed);
    return true;
  }
  std::vector<unsigned char> buffer(bytes);
  for (std::uint64_t at = 0; at + width <= bytes; at += width) {
    std::memcpy(buffer.data() + at, &value, width);
  }
  return write(target, buffer.data(), bytes);
}

}  // namespace gapless::simgpu
