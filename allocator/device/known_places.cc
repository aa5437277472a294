#include "allocator/device/known_places.h"

#include <algorithm>

#include "allocator/device/inner_pools.h"

namespace gapless {

Place KnownPlaces::of(BlockId id) const {
  const Block& block = blocks_[id];
  if (block.state != BlockState::window) return {0, {0, block.begin, block.size}};
  return {mapper_.windows().at(block.prev).address, {block.prev, block.begin, block.size}};
}

BlockId KnownPlaces::around(Unit unit) const {
  BlockId found = 0;
  home_.for_each([&](BlockId id, const Block& block) {
    if (block.begin <= unit && unit < block.end()) found = id;
  });
  return found;
}

bool KnownPlaces::is_partly_on_host(UnitRange range) const {
  const auto on_host = [&](Unit unit) { return home_mapper_.is_on_host(home_.page_of(unit)); };
  const bool begins_there = on_host(range.begin);
  for (Unit at = range.begin; at < range.begin + range.size; at += home_.page_units()) {
    if (on_host(at) != begins_there) return true;
  }
  return on_host(range.begin + range.size - 1) != begins_there;
}

std::optional<std::vector<UnitRange>> KnownPlaces::parts_of(std::span<const Place> places) const {
  std::vector<UnitRange> parts;
  for (const Place& place : places) {
    const WindowSpot& spot = place.spot;
    if (place.window_address == 0) {
      if (is_partly_on_host({spot.begin, spot.size})) return std::nullopt;
      parts.push_back({spot.begin, spot.size});
      continue;
    }
    if (!mapper_.is_there(spot, place.window_address)) return std::nullopt;
    const auto ranges = mapper_.windows().home_ranges(spot);
    parts.insert(parts.end(), ranges.begin(), ranges.end());
  }
  std::sort(parts.begin(), parts.end(),
            [](const UnitRange& a, const UnitRange& b) { return a.begin < b.begin; });
  // A window that was repaired meanwhile may have pages now that another place has.
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (parts[i - 1].begin + parts[i - 1].size > parts[i].begin) return std::nullopt;
  }
  return parts;
}

bool KnownPlaces::could_be_at(std::span<const Place> places, PoolIndex pool,
                              std::span<const BlockId> leaving) const {
  const auto wanted = parts_of(places);
  if (!wanted) return false;
  std::vector<BlockId> pieces(leaving.begin(), leaving.end());
  for (const BlockId id : leaving) {
    if (blocks_[id].state != BlockState::window) continue;
    for (BlockId lent = blocks_[id].link_next; lent != 0; lent = blocks_[lent].link_next) {
      pieces.push_back(lent);
    }
  }
  std::uint64_t found = 0;
  std::uint64_t needed = 0;
  for (const UnitRange& range : *wanted) needed += range.size;
  home_.for_each([&](BlockId id, const Block& block) {
    const PoolIndex free_in = sets_.pool_of(block.owner);
    const bool is_free =
        block.state == BlockState::hole && (free_in == pool || free_in == kSpillPool);
    if (!is_free && std::find(pieces.begin(), pieces.end(), id) == pieces.end()) return;
    auto range = std::partition_point(wanted->begin(), wanted->end(), [&](const UnitRange& each) {
      return each.begin + each.size <= block.begin;
    });
    for (; range != wanted->end() && range->begin < block.end(); ++range) {
      found +=
          std::min(range->begin + range->size, block.end()) - std::max(range->begin, block.begin);
    }
  });
  return found == needed;
}

std::optional<Place> KnownPlaces::free_at(DeviceAddress address, Unit size,
                                          const Reach& reach) const {
  if (const auto begin = home_mapper_.unit_at(address)) {
    const BlockId id = around(*begin);
    if (id == 0) return std::nullopt;
    const Block& block = blocks_[id];
    const bool is_usable = block.owner == reach.owner || block.owner == reach.anyone;
    const bool is_free = block.state == BlockState::hole && is_usable;
    if (!is_free || block.end() - *begin < size) return std::nullopt;
    return Place{0, {0, *begin, size}};
  }
  std::optional<Place> found;
  mapper_.windows().for_each([&](WindowId id, const Window& window) {
    const std::uint64_t bytes =
        window.pages.size() * std::uint64_t{home_.page_units()} * kUnitBytes;
    if (address < window.address || address - window.address >= bytes) return;
    const WindowSpot spot{id, static_cast<Unit>((address - window.address) / kUnitBytes), size};
    if (mapper_.is_there(spot, window.address) && mapper_.windows().is_free(spot, reach)) {
      found = Place{window.address, spot};
    }
  });
  return found;
}

}  // namespace gapless
