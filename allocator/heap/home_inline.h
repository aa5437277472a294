// Home: the steps that most requests take, for the compiler to make one of.
//
//   carve    | hole ........... |     ->     | live | hole ..... |
//            | live | hole | .. |     ->     | live | live | ... |     inside one page
//   free     | live | hole .... |     ->     | hole ............ |
//            | live | live | .. |     ->     | live | hole | ... |     inside one page
//
// Everything else goes the general way (home.cc), which does the same and more.
#pragma once

#include <algorithm>

#include "allocator/heap/home.h"

namespace gapless {

inline BlockId Home::best_fit(Unit size, Owner owner, Owner anyone) const {
  Holes* own = owner == anyone ? nullptr : holes_of(owner);
  const BlockId mine = own != nullptr ? own->bins.best_fit(size) : 0;
  Holes* shared = holes_of(anyone);
  if (shared == nullptr || shared->bins.count() == 0) [[likely]]
    return mine;
  return better_of(mine, shared->bins.best_fit(size));
}

template <class Good>
Fit Home::fit_where(Unit size, Owner owner, Owner anyone, Side side, Good&& good) const {
  constexpr int kHolesAsked = 8;  // of each owner
  for (const Owner of : {owner, anyone}) {
    Holes* holes = holes_of(of);
    BlockId id = holes != nullptr ? holes->bins.best_fit(size) : 0;
    for (int asked = 0; asked < kHolesAsked && id != 0; id = holes->bins.after(id)) {
      if (blocks_[id].size < size) continue;
      ++asked;
      const Block& hole = blocks_[id];
      const Fit fit = size < kLargeUnits ? Fit{id, hole.begin} : fit_in(id, size, side);
      if (good(fit)) return fit;
      // Beyond the page that it shares with what lies before.
      const Fit behind{id, frame_up(hole.begin) << page_shift_};
      const bool fits = behind.begin + size <= hole.end() && behind.begin > fit.begin;
      if (fits && size >= page_units_ && good(behind)) return behind;
    }
  }
  return {};
}

inline void Home::move_begin(BlockId id, Unit begin) {
  const Block& hole = blocks_[id];
  const Unit end = hole.end();
  if (!stays_inside_page(hole.begin, begin)) [[unlikely]] {
    reshape(id, begin, end);
    return;
  }
  const std::uint64_t gained = std::uint64_t{hole.begin} - begin;
  const bool ends_with_page = end == (begin | (page_units_ - 1)) + 1;
  suffix_units_ += gained & (0 - std::uint64_t{ends_with_page});
  free_units_ += gained;
  holes_[hole.owner]->bins.resize(id, begin, end - begin);
}

inline BlockId Home::make_block(UnitRange range, BlockState state) {
  const BlockId id = blocks_.make();
  Block& block = blocks_[id];
  block.begin = range.begin;
  block.size = range.size;
  block.state = state;
  return id;
}

inline BlockId Home::insert_before(BlockId after, UnitRange range, BlockState state) {
  const BlockId id = make_block(range, state);
  Block& block = blocks_[id];
  block.next = after;
  block.prev = blocks_[after].prev;
  blocks_[after].prev = id;
  if (block.prev != 0) {
    blocks_[block.prev].next = id;
  } else {
    first_ = id;
  }
  return id;
}

inline void Home::unlink(BlockId id) {
  const Block& block = blocks_[id];
  if (block.prev != 0) {
    blocks_[block.prev].next = block.next;
  } else {
    first_ = block.next;
  }
  blocks_[block.next].prev = block.prev;
  blocks_.recycle(id);
}

inline void Home::file_inside_page(BlockId id) {
  const Block& hole = blocks_[id];
  holes_[hole.owner]->bins.insert(id);
  free_units_ += hole.size;
  ++tally_.made;
  if (++tally_.current > tally_.peak) tally_.peak = tally_.current;
}

inline void Home::unfile_inside_page(BlockId id) {
  const Block& hole = blocks_[id];
  holes_[hole.owner]->bins.remove(id);
  free_units_ -= hole.size;
  --tally_.current;
}

inline BlockId Home::carve(BlockId id, UnitRange range, BlockState state) {
  Block& hole = blocks_[id];
  const Unit range_end = range.begin + range.size;
  if (range.begin == hole.begin && range_end < hole.end()) {
    move_begin(id, range_end);
    return insert_before(id, range, state);
  }
  if (range.size == hole.size && lies_inside_page(hole.begin, range_end)) {
    unfile_inside_page(id);
    hole.state = state;
    hole.extra = 0;
    return id;
  }
  return carve_elsewhere(id, range, state);
}

inline void Home::free(BlockId id, Owner owner, Epoch epoch) {
  Block& block = blocks_[id];
  Block& next = blocks_[block.next];
  // Record 0 is no block, so it is no hole either.
  const bool simple = blocks_[block.prev].state != BlockState::hole && page_epoch_.empty();
  if (simple && next.state != BlockState::hole) {
    if (lies_inside_page(block.begin, block.end()) && holes_of(owner) != nullptr) {
      block.state = BlockState::hole;
      block.owner = owner;
      block.extra = epoch;
      block.small = false;
      file_inside_page(id);
      return;
    }
  } else if (simple && next.owner == owner) {
    const Unit begin = block.begin;
    const BlockId hole = block.next;
    unlink(id);
    move_begin(hole, begin);
    next.extra = std::max(next.extra, epoch);
    return;
  }
  free_elsewhere(id, owner, epoch);
}

}  // namespace gapless
