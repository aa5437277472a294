#include "allocator/memory/address_space.h"

#include <algorithm>
#include <iterator>

namespace gapless {

DriverStatus AddressSpace::reserve(std::uint64_t bytes) {
  const std::uint64_t left = most_bytes_ - reserved_bytes_;
  if (bytes > left) return DriverStatus::out_of_memory;
  std::uint64_t size = std::min(std::max(reservation_bytes_, bytes), left);
  DeviceAddress base = 0;
  DriverStatus status = driver_.address_reserve(size, 0, base);
  while (status == DriverStatus::out_of_memory && size > bytes) {
    size = std::max<std::uint64_t>(1, size / 2 / bytes) * bytes;
    status = driver_.address_reserve(size, 0, base);
  }
  if (status != DriverStatus::ok) return status;
  reservations_[base] = size;
  reserved_bytes_ += size;
  free_[base] = size;
  return status;
}

DriverStatus AddressSpace::take(std::uint64_t bytes, DeviceAddress& address) {
  const auto find = [&] {
    return std::find_if(free_.begin(), free_.end(),
                        [&](const auto& range) { return range.second >= bytes; });
  };
  auto found = find();
  if (found == free_.end()) {
    if (const DriverStatus status = reserve(bytes); status != DriverStatus::ok) return status;
    found = find();
  }
  taken_bytes_ += bytes;
  const auto [begin, size] = *found;
  free_.erase(found);
  if (size > bytes) free_[begin + bytes] = size - bytes;
  address = begin;
  return DriverStatus::ok;
}

void AddressSpace::put_back(DeviceAddress address, std::uint64_t bytes) {
  taken_bytes_ -= bytes;
  auto [range, added] = free_.emplace(address, bytes);
  const auto joins = [&](auto lower, auto upper) {
    // Two reservations may happen to touch; they must not be cut across.
    return lower->first + lower->second == upper->first && !reservations_.contains(upper->first);
  };
  if (const auto next = std::next(range); next != free_.end() && joins(range, next)) {
    range->second += next->second;
    free_.erase(next);
  }
  if (range != free_.begin()) {
    if (const auto before = std::prev(range); joins(before, range)) {
      before->second += range->second;
      free_.erase(range);
    }
  }
}

DriverStatus AddressSpace::map(std::span<const Mapping> mappings) {
  DriverStatus status = DriverStatus::ok;
  std::size_t mapped = 0;
  for (; mapped < mappings.size(); ++mapped) {
    const auto& [address, piece] = mappings[mapped];
    status = driver_.mem_map(address, piece.bytes, piece.handle);
    if (status != DriverStatus::ok) break;
  }
  if (status == DriverStatus::ok) {
    const DeviceAddress first = mappings.front().address;
    const DeviceAddress end = mappings.back().end();
    status = give_access(first, end - first, device_);
    for (const DeviceIndex peer : peers_) {
      if (status == DriverStatus::ok) status = give_access(first, end - first, peer);
    }
  }
  if (status == DriverStatus::ok) return status;
  // Undo it, one call for each run of neighbours.
  for (std::size_t begin = 0; begin < mapped;) {
    std::size_t end = begin + 1;
    while (end < mapped && mappings[end].address == mappings[end - 1].end()) ++end;
    const std::uint64_t bytes = mappings[end - 1].end() - mappings[begin].address;
    if (driver_.mem_unmap(mappings[begin].address, bytes) != DriverStatus::ok) {
      leftovers_[mappings[begin].address] = bytes;
    }
    begin = end;
  }
  return status;
}

DriverStatus AddressSpace::map(DeviceAddress address, std::span<const MemoryPiece> pieces) {
  std::vector<Mapping> mappings;
  mappings.reserve(pieces.size());
  for (const MemoryPiece& piece : pieces) {
    mappings.push_back({address, piece});
    address += piece.bytes;
  }
  return map(mappings);
}

DriverStatus AddressSpace::unmap(DeviceAddress address, std::uint64_t bytes) {
  return driver_.mem_unmap(address, bytes);
}

bool AddressSpace::clear_leftovers() {
  std::erase_if(leftovers_, [&](const auto& range) {
    return driver_.mem_unmap(range.first, range.second) == DriverStatus::ok;
  });
  return leftovers_.empty();
}

bool AddressSpace::has_leftover(DeviceAddress address, std::uint64_t bytes) const {
  return std::any_of(leftovers_.begin(), leftovers_.end(), [&](const auto& range) {
    return range.first < address + bytes && address < range.first + range.second;
  });
}

DriverStatus AddressSpace::release_all() {
  clear_leftovers();
  DriverStatus first_failure = DriverStatus::ok;
  std::erase_if(reservations_, [&](const auto& range) {
    const DriverStatus status = driver_.address_free(range.first, range.second);
    if (status != DriverStatus::ok && first_failure == DriverStatus::ok) first_failure = status;
    if (status == DriverStatus::ok) reserved_bytes_ -= range.second;
    return status == DriverStatus::ok;
  });
  free_.clear();
  taken_bytes_ = 0;
  return first_failure;
}

}  // namespace gapless
