#include "allocator/check/fence.h"

#include <algorithm>
#include <utility>

#include "allocator/base/bytes.h"

namespace gapless {
namespace {

constexpr std::uint64_t kAlignment = 512;
// Reserved at a time.
constexpr std::uint64_t kReservationBytes = 64 * GiB;

// Spreads consecutive numbers over all: the finaliser of SplitMix64 (Steele, Lea and Flood, 2014),
// so that a program whose requests repeat with a period has another one picked each time.
std::uint64_t mixed(std::uint64_t number) {
  number += 0x9e3779b97f4a7c15;
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
  number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
  return number ^ (number >> 31);
}

// "/home/me/train.py:42 (step)" is at "train.py:42".
bool is_at(const std::string& call_site, const std::string& wanted) {
  const std::string place = call_site.substr(0, call_site.find(" ("));
  if (!place.ends_with(wanted)) return false;
  return place.size() == wanted.size() || place[place.size() - wanted.size() - 1] == '/';
}

}  // namespace

Fence::Fence(Driver& driver, DeviceIndex device, std::uint64_t page_bytes, ShareType share,
             const FencedRequests& requests)
    : driver_(driver),
      device_(device),
      page_bytes_(page_bytes),
      requests_(requests),
      physical_(driver, device, share),
      space_(driver, device, kReservationBytes) {}

bool Fence::picks(std::uint64_t bytes, const std::string& call_site) {
  if (bytes < requests_.from_bytes || bytes > requests_.to_bytes) return false;
  if (!requests_.call_site.empty() && !is_at(call_site, requests_.call_site)) return false;
  return mixed(seen_++) % requests_.one_of == 0;
}

bool Fence::leaves_enough(std::uint64_t bytes) const {
  const std::uint64_t left =
      std::min(physical_.free_on_device().value_or(UINT64_MAX), physical_.limit_left_bytes());
  return bytes <= left / 2;
}

Fence::Block* Fence::make(std::uint64_t bytes, StreamHandle stream, std::string call_site) {
  (void)space_.clear_leftovers();
  const std::uint64_t room = align_up(bytes, kAlignment);
  Block block;
  block.mapped_bytes = align_up(room, page_bytes_);
  block.memory.bytes = block.mapped_bytes;
  if (!leaves_enough(block.mapped_bytes)) return nullptr;
  if (physical_.create({&block.memory, 1}) != DriverStatus::ok) return nullptr;
  if (space_.take(address_bytes(block), block.begin) != DriverStatus::ok) {
    physical_.release({&block.memory, 1});
    return nullptr;
  }
  const DeviceAddress mapped = block.begin + page_bytes_;
  block.mapped_begin = mapped;
  if (space_.map(mapped, {&block.memory, 1}) != DriverStatus::ok) {
    // What the driver would not undo keeps its addresses.
    if (!space_.has_leftover(mapped, block.mapped_bytes)) {
      space_.put_back(block.begin, address_bytes(block));
    }
    physical_.release({&block.memory, 1});
    return nullptr;
  }
  block.facts = {mapped + block.mapped_bytes - room, room, bytes, stream, std::move(call_site),
                 std::chrono::steady_clock::now(),   {},   true};
  ++live_;
  const DeviceAddress address = block.facts.address;
  return &(blocks_[address] = std::move(block));
}

void Fence::leave(Block& block) {
  if (std::exchange(block.freed, true)) return;
  block.facts.freed = std::chrono::steady_clock::now();
  --live_;
}

DriverStatus Fence::take_away(Block& block) {
  leave(block);
  if (block.pins != 0) return DriverStatus::ok;
  DriverStatus status = driver_.device_synchronize(device_);
  for (const DeviceIndex other : block.other_devices) {
    if (status == DriverStatus::ok) status = driver_.device_synchronize(other);
  }
  if (status == DriverStatus::ok) {
    status = space_.unmap(block.mapped_begin, block.mapped_bytes);
  }
  if (status != DriverStatus::ok) return status;
  physical_.release({&block.memory, 1});
  close_descriptors(block.shared);
  auto taken = blocks_.extract(block.facts.address);
  retire(std::move(taken.mapped()));
  return DriverStatus::ok;
}

bool Fence::take_away_freed() {
  const std::uint64_t released = physical_.released();
  if (physical_.unreleased() != 0) physical_.retry_releases();
  std::vector<DeviceAddress> freed;
  if (blocks_.size() != live_) {
    for (const auto& [address, block] : blocks_) {
      if (block.freed && block.pins == 0) freed.push_back(address);
    }
  }
  for (const DeviceAddress address : freed) {
    if (take_away(blocks_.at(address)) != DriverStatus::ok) break;
  }
  return physical_.released() != released;
}

void Fence::retire(Block&& block) {
  retired_bytes_ += address_bytes(block);
  retired_.push_back(std::move(block));
  while (retired_bytes_ > kQuarantineBytes || retired_.size() > kQuarantineBlocks) {
    const Block& oldest = retired_.front();
    space_.put_back(oldest.begin, address_bytes(oldest));
    retired_bytes_ -= address_bytes(oldest);
    retired_.pop_front();
  }
}

Status Fence::unpin(Block& block) {
  if (block.pins == block.shares) return Status::invalid_argument;
  --block.pins;
  return Status::ok;
}

Status Fence::share(Block& block, SharedBlock& shared) {
  if (physical_.share() == ShareType::none) return Status::invalid_argument;
  if (block.shares == 0) {
    SharedBlock made{physical_.share(), block.slack_bytes(), block.facts.bytes, {}};
    SharedPiece piece{{}, block.memory.bytes};
    if (driver_.mem_export(block.memory.handle, made.type, piece.handle) != DriverStatus::ok) {
      return Status::driver_error;
    }
    made.pieces.push_back(piece);
    block.shared = std::move(made);
  }
  ++block.pins;
  ++block.shares;
  shared = block.shared;
  return Status::ok;
}

Status Fence::unshare(Block& block) {
  if (block.shares == 0) return Status::invalid_argument;
  if (--block.shares == 0) close_descriptors(block.shared);
  --block.pins;
  return Status::ok;
}

DriverStatus Fence::add_peer(DeviceIndex peer) {
  for (const auto& [address, block] : blocks_) {
    const DriverStatus status = space_.give_access(block.mapped_begin, block.mapped_bytes, peer);
    if (status != DriverStatus::ok) return status;
  }
  space_.add_peer(peer);
  return DriverStatus::ok;
}

void Fence::release_all() {
  (void)take_away_freed();
  if (!blocks_.empty()) return;
  for (const Block& block : retired_) space_.put_back(block.begin, address_bytes(block));
  retired_.clear();
  retired_bytes_ = 0;
  physical_.retry_releases();
  if (space_.clear_leftovers()) (void)space_.release_all();
}

}  // namespace gapless
