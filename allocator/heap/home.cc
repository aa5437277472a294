#include "allocator/heap/home.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace gapless {

Home::Home(BlockTable& blocks, Unit page_units, PageId max_pages)
    : blocks_(blocks),
      page_units_(page_units),
      page_shift_(static_cast<unsigned>(std::countr_zero(page_units))),
      max_pages_(max_pages),
      frames_(max_pages),
      present_(max_pages),
      mixed_(max_pages),
      starts_(std::size_t{max_pages} + 1, 0),
      suffix_(std::size_t{max_pages} + 1, 0) {
  if (!std::has_single_bit(page_units)) {
    throw std::invalid_argument("the page size is no power of two");
  }
  if (std::uint64_t{page_units} * max_pages > UINT32_MAX) {
    throw std::invalid_argument("the home is larger than 2 TiB");
  }
  make_holes_of(kAnyone);
  first_ = blocks_.make();
  Block& all = blocks_[first_];
  all.begin = 0;
  all.size = page_units * max_pages;
  all.state = BlockState::absent;
  absent_.push_back(first_);
}

Home::Holes& Home::make_holes_of(Owner owner) {
  if (owner >= holes_.size()) holes_.resize(std::size_t{owner} + 1);
  if (!holes_[owner]) holes_[owner] = std::make_unique<Holes>(blocks_, max_pages_);
  return *holes_[owner];
}

// --- filing ------------------------------------------------------------------------------------

void Home::note_boundary(BlockId id, bool there) {
  const Block& hole = blocks_[id];
  const PageId page = page_up(hole.begin);
  const Unit page_at = page << page_shift_;
  if (hole.end() < page_at) return;  // the usual small hole: inside one page
  if (hole.size < page_units_) {
    // Only the begin or only the end of one page?
    std::uint64_t* sum = nullptr;
    if (hole.begin == page_at) sum = &prefix_units_;
    if (hole.end() == page_at) sum = &suffix_units_;
    if (sum != nullptr) *sum += there ? hole.size : 0 - std::uint64_t{hole.size};
  }
  const PageId boundary = frames_.up(page);
  const Unit at = boundary << page_shift_;
  if (hole.end() < at) return;
  if (hole.end() > at) starts_[boundary] = there ? id : 0;
  if (hole.begin < at) suffix_[boundary] = there ? id : 0;
}

void Home::file(BlockId id) {
  const Block& hole = blocks_[id];
  if (hole.owner >= holes_.size() || !holes_[hole.owner]) make_holes_of(hole.owner);
  file_inside_page(id);
  note_boundary(id, true);
}

void Home::unfile(BlockId id) {
  unfile_inside_page(id);
  note_boundary(id, false);
}

void Home::move_end(BlockId id, Unit end) {
  const Block& hole = blocks_[id];
  const Unit at = page_down(end) << page_shift_;
  const Unit old_end = hole.end();
  if (end == at || old_end == at || page_down(old_end) << page_shift_ != at) {
    reshape(id, hole.begin, end);
    return;
  }
  const std::uint64_t gained = std::uint64_t{end} - old_end;
  if (hole.begin == at) prefix_units_ += gained;
  free_units_ += gained;
  holes_[hole.owner]->bins.resize(id, hole.begin, end - hole.begin);
}

void Home::reshape(BlockId id, Unit begin, Unit end) {
  Block& hole = blocks_[id];
  const Block before = hole;
  free_units_ += std::uint64_t{end - begin} - hole.size;
  note_boundary(id, false);
  holes_[hole.owner]->bins.resize(id, begin, end - begin);
  note_boundary(id, true);
  if (begin > before.begin) mark_pages(before, {before.begin, begin - before.begin}, false);
  if (end < before.end()) mark_pages(before, {end, before.end() - end}, false);
  if (begin < before.begin) mark_pages(hole, {begin, before.begin - begin}, true);
  if (end > before.end()) mark_pages(hole, {before.end(), end - before.end()}, true);
}

void Home::mark_pages(const Block& hole, UnitRange within, bool free) {
  const PageId begin = std::max(frame_up(hole.begin), frame_down(within.begin));
  const PageId end = std::min(frame_down(hole.end()), frame_up(within.begin + within.size));
  if (begin >= end) return;
  Bitmap& pages = holes_[hole.owner]->pages;
  if (!page_owner_.empty()) {
    std::fill(page_owner_.begin() + begin, page_owner_.begin() + end, free ? hole.owner : kNobody);
  }
  if (free) {
    pages.set_range(begin, end);
  } else {
    pages.clear_range(begin, end);
  }
}

BlockId Home::insert_after(BlockId before, UnitRange range, BlockState state) {
  const BlockId id = make_block(range, state);
  Block& block = blocks_[id];
  block.prev = before;
  block.next = blocks_[before].next;
  blocks_[before].next = id;
  blocks_[block.next].prev = id;  // record 0 is no block, and may be written
  return id;
}

// --- blocks ------------------------------------------------------------------------------------

BlockId Home::better_of(BlockId mine, BlockId common) const {
  if (mine == 0) return common;
  // With several streams a stream's own memory comes first: to others it is worth less.
  if (common == 0 || !page_epoch_.empty()) return mine;
  const Block& a = blocks_[mine];
  const Block& b = blocks_[common];
  return a.size != b.size ? (a.size < b.size ? mine : common) : (a.begin < b.begin ? mine : common);
}

PageId Home::pages_broken(const Block& hole, UnitRange used) const {
  const PageId begin = std::max(frame_up(hole.begin), frame_down(used.begin));
  const PageId end = std::min(frame_down(hole.end()), frame_up(used.begin + used.size));
  return end > begin ? end - begin : 0;
}

Fit Home::fit_by_pages(BlockId first, Unit size, Side side) const {
  constexpr int kHolesTried = 3;
  const bool at_begin = side == Side::begin || is_of_many_pages(size);
  SizeBins& bins = holes_[blocks_[first].owner]->bins;
  Fit best;
  PageId least = UINT32_MAX;
  BlockId id = first;
  for (int tried = 0; tried < kHolesTried && id != 0; id = bins.after(id)) {
    const Block& hole = blocks_[id];
    if (hole.size < size) continue;
    ++tried;
    const Fit fit = fit_in(id, size, side);
    if (at_begin || blocks_[hole.next].state == BlockState::absent) return fit;
    const PageId broken = pages_broken(hole, {fit.begin, size});
    if (broken >= least) continue;
    least = broken;
    best = fit;
    if (least <= page_down(size)) return best;  // hardly any place breaks fewer
  }
  return best;
}

Fit Home::fit_in(BlockId id, Unit size, Side side) const {
  const Block& hole = blocks_[id];
  const Fit at_begin{id, hole.begin};
  // Before absent pages memory is as good as new. A program that has all of it again, step by step
  // or anew, is to find its blocks side by side as it did while they came.
  if (blocks_[hole.next].state == BlockState::absent) return at_begin;
  // What is whole pages long breaks as few as it can where it begins with one, and is as many whole
  // pages when it is freed.
  const Unit up = frame_up(hole.begin) << page_shift_;
  if (up + size <= hole.end() && frame_up(up + size) << page_shift_ == up + size) return {id, up};
  if (side == Side::begin || is_of_many_pages(size)) return at_begin;
  const PageId broken = pages_broken(hole, {hole.begin, size});
  const Fit at_end{id, hole.end() - size};
  const bool is_enough = broken <= page_down(size);
  return is_enough || pages_broken(hole, {at_end.begin, size}) >= broken ? at_begin : at_end;
}

BlockId Home::carve_elsewhere(BlockId id, UnitRange range, BlockState state) {
  Block& hole = blocks_[id];
  const Unit hole_end = hole.end();
  const Unit range_end = range.begin + range.size;
  if (range.begin == hole.begin) {
    mark_pages(hole, range, false);
    unfile(id);
    hole.state = state;
    hole.extra = 0;
    return id;
  }
  if (range_end == hole_end) {
    move_end(id, range.begin);
    return insert_after(id, range, state);
  }
  const Owner owner = hole.owner;
  const std::uint32_t epoch = hole.extra;
  mark_pages(hole, range, false);
  mark_pages(hole, {range_end, hole_end - range_end}, false);
  unfile(id);
  hole.size = range.begin - hole.begin;
  file(id);
  const BlockId cut = insert_after(id, range, state);
  const BlockId rest = insert_after(cut, {range_end, hole_end - range_end}, BlockState::hole);
  blocks_[rest].owner = owner;
  blocks_[rest].extra = epoch;
  file(rest);
  mark_pages(blocks_[rest], {range_end, hole_end - range_end}, true);
  return cut;
}

void Home::change_owner(BlockId id, Owner owner, Epoch epoch) {
  Block& hole = blocks_[id];
  mark_pages(hole, {hole.begin, hole.size}, false);
  unfile(id);
  hole.owner = owner;
  hole.extra = epoch;
  file(id);
  mark_pages(hole, {hole.begin, hole.size}, true);
}

void Home::free_elsewhere(BlockId id, Owner owner, Epoch epoch) {
  const Block& block = blocks_[id];
  if (!page_epoch_.empty()) {
    const auto begin = page_epoch_.begin() + frame_down(block.begin);
    std::fill(begin, page_epoch_.begin() + frame_up(block.end()), epoch);
  }
  const BlockId next = block.next;
  const BlockId prev = block.prev;
  // Record 0 is no block, so it is no hole either.
  const bool up = blocks_[next].state == BlockState::hole;
  const bool down = blocks_[prev].state == BlockState::hole;
  if (!page_epoch_.empty() && !holds_apart_ && pool_of(owner) == 0) {
    free_for_everyone(id, owner, epoch);
    return;
  }
  if ((up && blocks_[next].owner != owner) || (down && blocks_[prev].owner != owner)) [[unlikely]] {
    free_beside_others(id, owner, epoch);
    return;
  }
  // Where it is the last part of a page to be free, other owners' holes may make up the rest.
  note_mixed(join(id, up ? next : 0, down ? prev : 0, owner, epoch));
}

void Home::free_for_everyone(BlockId id, Owner owner, Epoch epoch) {
  // What lies inside a page stays apart from what others used there, until it is settled.
  const auto is_part_of_page = [&](Unit first, Unit last_end) {
    return last_end - first < page_units_ && page_down(first) == page_down(last_end - 1);
  };
  const bool inside = is_part_of_page(blocks_[id].begin, blocks_[id].end());
  const auto joins = [&](BlockId other) {
    if (blocks_[other].state != BlockState::hole) return false;
    return blocks_[other].owner == owner || (!inside && pool_of(blocks_[other].owner) == 0);
  };
  const BlockId next = joins(blocks_[id].next) ? blocks_[id].next : 0;
  const BlockId prev = joins(blocks_[id].prev) ? blocks_[id].prev : 0;
  const Unit begin = prev != 0 ? blocks_[prev].begin : blocks_[id].begin;
  const Unit end = next != 0 ? blocks_[next].end() : blocks_[id].end();
  if (!is_part_of_page(begin, end)) owner = kAnyone;
  bool changed = false;
  for (const BlockId other : {next, prev}) {
    if (other == 0 || blocks_[other].owner == owner) continue;
    change_owner(other, owner, blocks_[other].extra);
    changed = true;
  }
  const BlockId hole = join(id, next, prev, owner, epoch);
  // A neighbour that was held apart may lie beside another hole of everyone's.
  note_mixed(changed ? merge(hole) : hole);
}

// While there is one stream, a neighbour that anyone may use becomes its own, and memory freed for
// anyone goes to a neighbour's owner: the larger hole is worth more. With several streams they stay
// apart: who uses a hole next must come after those who used it, and only they.
void Home::free_beside_others(BlockId id, Owner owner, Epoch epoch) {
  const bool alone = page_epoch_.empty();
  const auto joins = [&](BlockId other) {
    return blocks_[other].state == BlockState::hole &&
           (blocks_[other].owner == owner ||
            (alone && (blocks_[other].owner == kAnyone || owner == kAnyone)));
  };
  const BlockId next = blocks_[id].next;
  const BlockId prev = blocks_[id].prev;
  const bool up = joins(next);
  if (up && owner == kAnyone) owner = blocks_[next].owner;
  const bool down = joins(prev);
  if (down && owner == kAnyone) owner = blocks_[prev].owner;
  bool changed = false;
  for (const BlockId other : {up ? next : 0, down ? prev : 0}) {
    if (other == 0) continue;
    epoch = std::max(epoch, blocks_[other].extra);
    if (blocks_[other].owner == owner) continue;
    change_owner(other, owner, epoch);
    changed = true;
  }
  const BlockId hole = join(id, up ? next : 0, down ? prev : 0, owner, epoch);
  // A neighbour that came over may lie beside another hole of its new owner.
  if (changed) {
    merge(hole);
  } else {
    note_mixed(hole);
  }
}

BlockId Home::join(BlockId id, BlockId next, BlockId prev, Owner owner, Epoch epoch) {
  Block& block = blocks_[id];
  const Unit begin = block.begin;
  const Unit end = block.end();
  if (next == 0 && prev == 0) {
    block.state = BlockState::hole;
    block.owner = owner;
    block.extra = epoch;
    block.small = false;
    file(id);
    mark_pages(block, {begin, end - begin}, true);
    return id;
  }
  unlink(id);
  if (prev == 0) {
    move_begin(next, begin);
    blocks_[next].extra = std::max(blocks_[next].extra, epoch);
    return next;
  }
  Unit new_end = end;
  if (next != 0) {
    const Block& upper = blocks_[next];
    new_end = upper.end();
    epoch = std::max(epoch, upper.extra);
    mark_pages(upper, {upper.begin, upper.size}, false);
    unfile(next);
    unlink(next);
  }
  move_end(prev, new_end);
  blocks_[prev].extra = std::max(blocks_[prev].extra, epoch);
  return prev;
}

BlockId Home::largest_hole(Owner owner, Owner anyone) const {
  BlockId largest = 0;
  for (const Owner of : {owner, anyone}) {
    Holes* holes = holes_of(of);
    const BlockId hole = holes != nullptr ? holes->bins.largest() : 0;
    if (blocks_[hole].size > blocks_[largest].size) largest = hole;  // record 0 has no size
  }
  return largest;
}

}  // namespace gapless
