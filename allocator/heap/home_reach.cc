// Home: whose memory is where. The holes by owner, and by page: what is within a stream's reach.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "allocator/heap/home.h"

namespace gapless {

// --- owners ------------------------------------------------------------------------------------

void Home::note_pool(Owner owner, std::uint16_t pool) {
  if (owner >= pool_of_.size()) pool_of_.resize(std::size_t{owner} + 1, 0);
  pool_of_[owner] = pool;
}

bool Home::settle(Owner owner, Epoch last, Owner anyone, std::optional<Epoch> stamp) {
  Holes* own = holes_of(owner);
  if (own == nullptr || owner == anyone) return false;
  std::vector<BlockId> done;
  own->bins.for_each([&](BlockId id) {
    if (blocks_[id].extra <= last) done.push_back(id);
  });
  for (const BlockId id : done) change_owner(id, anyone, stamp.value_or(blocks_[id].extra));
  // Neighbours that both belong to anyone now are one hole.
  for (const BlockId id : done) {
    if (blocks_[id].state != BlockState::hole) continue;
    merge(id);
    if (blocks_[id].state == BlockState::hole) note_mixed(id);
  }
  return !done.empty();
}

bool Home::set_aside(Owner owner, Epoch last, Owner aside) {
  Holes* own = holes_of(owner);
  if (own == nullptr) return false;
  std::vector<BlockId> young;
  own->bins.for_each([&](BlockId id) {
    if (blocks_[id].extra > last) young.push_back(id);
  });
  const HoleTally before = tally_;
  for (const BlockId id : young) split_aside(id, last, aside);
  // Nobody has made these holes.
  holes_by_aside_ += tally_.current - before.current;
  tally_ = before;
  return !young.empty();
}

void Home::split_aside(BlockId id, Epoch last, Owner aside) {
  const Block hole = blocks_[id];
  const PageId first = frame_down(hole.begin);
  const PageId end = frame_up(hole.end());
  // When its pages were freed is not to be told anew.
  const std::vector<Epoch> epochs(page_epoch_.begin() + first, page_epoch_.begin() + end);
  const auto freed_in_frame = [&](PageId page) {
    const auto begin = epochs.begin() + (page - first);
    return *std::max_element(begin, begin + frames_.pages(page));
  };
  for (PageId page = first; page < end;) {
    const PageId begin = page;
    Epoch latest = 0;
    for (; page < end && freed_in_frame(page) > last; page = frames_.end(page)) {
      latest = std::max(latest, freed_in_frame(page));
    }
    if (page == begin) {
      page = frames_.end(page);
      continue;
    }
    const Unit from = std::max(begin * page_units_, hole.begin);
    const Unit to = std::min(page * page_units_, hole.end());
    const BlockId part = carve(id, {from, to - from}, BlockState::live);
    if (to < hole.end()) id = blocks_[part].next;  // the rest of the hole
    free(part, aside, std::min(latest, hole.extra));
  }
  std::copy(epochs.begin(), epochs.end(), page_epoch_.begin() + first);
}

void Home::take_back(Owner owner, Owner aside) {
  HoleTally& tally = tally_;
  tally.current += std::exchange(holes_by_aside_, 0);
  const HoleTally before = tally;
  settle(aside, kNoEpoch, owner);
  tally.made = before.made;
  // What is whole again may be in more pieces than there were ever before.
  tally.peak = std::max(before.peak, tally.current);
}

void Home::tell_streams_apart(Epoch now) {
  page_epoch_.assign(max_pages_, now);
  std::vector<Owner> owners(max_pages_, kNobody);
  for (PageId page = 0; page < max_pages_; ++page) owners[page] = page_owner(page);
  page_owner_ = std::move(owners);
}

Epoch Home::freed_in(BlockId hole, UnitRange range) const {
  const auto begin = page_epoch_.begin() + page_down(range.begin);
  const auto end = page_epoch_.begin() + page_up(range.begin + range.size);
  return std::min(blocks_[hole].extra, *std::max_element(begin, end));
}

Fit Home::fit_in_part(BlockId id, Unit size, Epoch up_to) const {
  const Block& hole = blocks_[id];
  if (hole.extra <= up_to) return {id, hole.begin};
  // The first run of pages, those at the hole's ends with it, that were all freed early enough.
  Unit begin = hole.begin;
  for (PageId page = page_down(hole.begin); page < page_up(hole.end()); ++page) {
    const Unit end = std::min<Unit>((page + 1) * page_units_, hole.end());
    if (page_epoch_[page] > up_to) {
      begin = end;
    } else if (end - begin >= size) {
      return {id, begin};
    }
  }
  return {};
}

Fit Home::fit_among_others(Unit size, Reach reach) const {
  constexpr int kHolesTried = 16;  // of each owner
  Fit best;
  for_each_other(reach, [&](Holes& holes) {
    BlockId id = holes.bins.best_fit(size);
    for (int tried = 0; tried < kHolesTried && id != 0; ++tried, id = holes.bins.after(id)) {
      if (best.hole != 0 && blocks_[best.hole].size <= blocks_[id].size) break;
      if (blocks_[id].size < size) continue;
      const Fit fit = fit_in_part(id, size, reach.others_up_to);
      if (fit.hole == 0) continue;
      best = fit;
      break;
    }
  });
  return best;
}

BlockId Home::merge(BlockId id) {
  const auto joins = [&](BlockId other) {
    return other != 0 && blocks_[other].state == BlockState::hole &&
           blocks_[other].owner == blocks_[id].owner;
  };
  while (joins(blocks_[id].prev)) id = blocks_[id].prev;
  while (joins(blocks_[id].next)) {
    const BlockId next = blocks_[id].next;
    const Unit end = blocks_[next].end();
    blocks_[id].extra = std::max(blocks_[id].extra, blocks_[next].extra);
    mark_pages(blocks_[next], {blocks_[next].begin, blocks_[next].size}, false);
    unfile(next);
    unlink(next);
    move_end(id, end);
  }
  return id;
}

// --- the view by page --------------------------------------------------------------------------

bool Home::others_page(PageId page, Reach reach) const {
  const Owner owner = page_owner(page);
  return owner != kNobody && may_be_other(owner, reach) && page_epoch_[page] <= reach.others_up_to;
}

void Home::note_mixed(BlockId id) {
  if (page_epoch_.empty()) return;
  const Block& hole = blocks_[id];
  const auto meets = [&](BlockId other, Unit at) {
    if (blocks_[other].state == BlockState::hole && frame_down(at) * page_units_ != at) {
      mixed_.set_range(frame_down(at), frame_up(at));
    }
  };
  meets(hole.prev, hole.begin);
  meets(hole.next, hole.end());
}

bool Home::mixed_page(PageId page, Reach reach) const {
  const Unit begin = frames_.begin(page) * page_units_;
  const Unit end = frames_.end(page) * page_units_;
  BlockId id = find_hole(begin);
  bool within = true;
  for (Unit at = begin; at < end;) {
    const Block& block = blocks_[id];
    if (id == 0 || block.state != BlockState::hole) {
      mixed_.clear_range(frames_.begin(page), frames_.end(page));  // not any more
      return false;
    }
    within = within && is_within(block, page, reach);
    at = block.end();
    id = block.next;
  }
  return within;
}

Bitmap Home::pages_within(Reach reach) const {
  Bitmap within(max_pages_);
  for (const Owner owner : {reach.anyone, reach.owner}) {
    if (Holes* holes = holes_of(owner); holes != nullptr) within.add(holes->pages);
  }
  for (PageId page = mixed_.find_set(0); page != Bitmap::npos; page = mixed_.find_set(page + 1)) {
    if (mixed_page(page, reach)) within.set(page);
  }
  if (reach.others_up_to != 0) {
    for_each_other(reach, [&](const Holes& holes) {
      for (PageId page = holes.pages.find_set(0); page != Bitmap::npos;
           page = holes.pages.find_set(page + 1)) {
        if (page_epoch_[page] <= reach.others_up_to) within.set_range(page, page + 1);
      }
    });
  }
  for (PageId page = reach.except != nullptr ? reach.except->find_set(0) : Bitmap::npos;
       page != Bitmap::npos; page = reach.except->find_set(page + 1)) {
    within.clear(page);
  }
  return within;
}

PageId Home::free_pages(Reach reach) const {
  if (reach.others_up_to != 0 || mixed_.count() != 0 || reach.except != nullptr) {
    return pages_within(reach).count();
  }
  PageId count = 0;
  if (Holes* anyones = holes_of(reach.anyone); anyones != nullptr) count = anyones->pages.count();
  Holes* own = reach.owner == reach.anyone ? nullptr : holes_of(reach.owner);
  if (own != nullptr) count += own->pages.count();
  return count;
}

std::vector<PageRange> Home::free_runs(Reach reach) const {
  const Bitmap pages = pages_within(reach);
  std::vector<PageRange> runs;
  for (PageId begin = pages.find_set(0); begin != Bitmap::npos;) {
    const PageId end = pages.find_clear(begin);
    runs.push_back({begin, end - begin});
    begin = pages.find_set(end);
  }
  return runs;
}

Unit Home::free_suffix(PageId page, Reach reach) const {
  const BlockId id = suffix_[page + 1];
  if (id == 0 || !is_within(blocks_[id], page, reach)) return 0;
  return (page + 1) * page_units_ - blocks_[id].begin;
}

Unit Home::free_prefix(PageId page, Reach reach) const {
  const Unit at = page * page_units_;
  BlockId id = starts_[page];
  if (id == 0 && page > 0) {
    if (const Owner owner = page_owner(page - 1); owner != kNobody) {
      id = starts_[holes_[owner]->pages.run_begin(page - 1)];
    }
  }
  if (id == 0) return 0;
  const Block& hole = blocks_[id];
  const bool ends_inside = hole.end() > at && hole.end() < frames_.end(page) * page_units_;
  return ends_inside && is_within(hole, page, reach) ? hole.end() - at : 0;
}

BlockId Home::hole_at(Unit unit) const {
  if (const BlockId hole = find_hole(unit); hole != 0) return hole;
  // A place in a window that is restored may lie inside a frame.
  for (BlockId id = first_; id != 0; id = blocks_[id].next) {
    const Block& block = blocks_[id];
    if (unit < block.begin || unit >= block.end()) continue;
    if (block.state == BlockState::hole) return id;
  }
  throw std::logic_error("home: no hole there");
}

bool Home::is_free(UnitRange range, Reach reach) const {
  const BlockId id = find_hole(range.begin);
  if (id == 0 || blocks_[id].end() < range.begin + range.size) return false;
  const Block& hole = blocks_[id];
  return usable(hole, reach) ||
         (may_be_other(hole.owner, reach) && freed_in(id, range) <= reach.others_up_to);
}

BlockId Home::find_hole(Unit unit) const {
  const PageId frame = frame_down(unit);
  const PageId above = frames_.end(frame);
  const auto contains = [&](BlockId id) {
    return id != 0 && blocks_[id].begin <= unit && unit < blocks_[id].end();
  };
  if (const Owner owner = page_owner(frame); owner != kNobody) {
    return starts_[holes_[owner]->pages.run_begin(frame)];
  }
  if (contains(suffix_[above])) return suffix_[above];
  if (contains(starts_[frame])) return starts_[frame];
  if (frame > 0) {
    if (const Owner owner = page_owner(frame - 1); owner != kNobody) {
      const BlockId id = starts_[holes_[owner]->pages.run_begin(frame - 1)];
      if (contains(id)) return id;
    }
  }
  if (mixed_.test(frame) && unit != frame * page_units_) {
    BlockId id = find_hole(frame * page_units_);
    while (blocks_[id].state == BlockState::hole && !contains(id)) id = blocks_[id].next;
    if (blocks_[id].state == BlockState::hole) return id;
  }
  return 0;
}

}  // namespace gapless
