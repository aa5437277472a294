#include "allocator/device/arena.h"

#include <stdexcept>
#include <string>

namespace gapless {
namespace {

DeviceProperties plain_only(DeviceProperties properties) {
  properties.has_vmm = false;
  properties.granularity_bytes = 0;
  return properties;
}

}  // namespace

ArenaSums Arena::validate(const std::vector<BlockId>& held) const {
  heap.validate();
  const auto check = [](bool holds, const char* rule) {
    if (!holds) throw std::logic_error(std::string("arena: ") + rule);
  };
  std::uint64_t lent_units = 0;
  std::uint64_t live_units = 0;
  std::size_t live_blocks = 0;
  heap.home().for_each([&](BlockId, const Block& block) {
    if (block.state == BlockState::lent) lent_units += block.size;
    if (block.state == BlockState::live) {
      live_units += block.size;
      ++live_blocks;
    }
  });
  std::uint64_t window_units = 0;
  std::size_t window_blocks = 0;
  const auto look_at = [&](const Block& block) {
    check(block.state == BlockState::live || block.state == BlockState::window,
          "a live address leads to no live block");
    if (block.state != BlockState::window) return;
    ++window_blocks;
    window_units += block.size;
    std::vector<UnitRange> lent;
    for (BlockId next = block.link_next; next != 0; next = heap.blocks()[next].link_next) {
      const Block& piece = heap.blocks()[next];
      check(piece.state == BlockState::lent, "a window block's page is not lent");
      if (!lent.empty() && lent.back().begin + lent.back().size == piece.begin) {
        lent.back().size += piece.size;
      } else {
        lent.push_back({piece.begin, piece.size});
      }
    }
    const auto expected = heap.windows().home_ranges({block.prev, block.begin, block.size});
    check(lent.size() == expected.size(), "a window block does not own its pages");
    for (std::size_t i = 0; i < lent.size(); ++i) {
      check(lent[i].begin == expected[i].begin && lent[i].size == expected[i].size,
            "a window block owns other pages than it lies on");
    }
  };
  ArenaSums sums;
  live.for_each([&](BlockId id) {
    const Block& block = heap.blocks()[id];
    sums.requested_bytes += block.size * kUnitBytes - block.extra;
    look_at(block);
  });
  for (const BlockId id : held) look_at(heap.blocks()[id]);
  check(live.size() + held.size() == live_blocks + window_blocks, "a live block nobody can free");
  check(lent_units == window_units, "pages are lent to nobody");
  sums.used_bytes = (live_units + window_units) * kUnitBytes;
  sums.free_bytes = heap.home().free_units() * kUnitBytes;
  sums.present_bytes = heap.home().present_pages() * heap.page_bytes();
  sums.elsewhere_bytes = heap.pools().asleep().pages() * heap.page_bytes() + heap.spilled_bytes();
  return sums;
}

DriverStatus SourceDriver::mem_alloc(DeviceIndex /*device*/, std::uint64_t bytes,
                                     DeviceAddress& address) {
  const DeviceAddress given = source_.alloc(bytes);
  if (given == 0) return DriverStatus::out_of_memory;
  bytes_[given] = bytes;
  address = given;
  return DriverStatus::ok;
}

DriverStatus SourceDriver::mem_free(DeviceIndex device, DeviceAddress address) {
  const auto found = bytes_.find(address);
  if (found == bytes_.end()) return DriverStatus::invalid_value;
  // Work may still use it; the user's function need not wait.
  if (const DriverStatus status = device_synchronize(device); status != DriverStatus::ok) {
    return status;
  }
  source_.free(address, found->second);
  bytes_.erase(found);
  return DriverStatus::ok;
}

SourcedArena::SourcedArena(Driver& inner, DeviceIndex device, DeviceProperties properties,
                           const Options& options, PoolSource source)
    : driver(inner, std::move(source)),
      arena(driver, device, plain_only(std::move(properties)), options) {}

}  // namespace gapless
