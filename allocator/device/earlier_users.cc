#include "allocator/device/earlier_users.h"

#include <algorithm>

namespace gapless {

void EarlierUsers::note_all_used() {
  for (PageId page = 0; page < home_.max_pages(); ++page) {
    if (home_.is_present(page)) uses_.note(0, page, page + 1, streams_.now());
  }
}

void EarlierUsers::note(BlockId id, Owner owner, Epoch epoch) {
  const auto note_part = [&](UnitRange range) {
    const PageId first = home_.page_of(range.begin);
    const PageId end = home_.page_of(range.begin + range.size - 1) + 1;
    for (const StreamIndex stream : streams_.sets().members(owner)) {
      uses_.note(stream, first, end, epoch);
    }
  };
  const Block& block = blocks_[id];
  if (block.state != BlockState::window) return note_part({block.begin, block.size});
  for (BlockId lent = block.link_next; lent != 0; lent = blocks_[lent].link_next) {
    note_part({blocks_[lent].begin, blocks_[lent].size});
  }
}

template <class F>
void EarlierUsers::for_each_before(Owner owner, BlockId hole, UnitRange range, F&& f) const {
  const PageId first = home_.page_of(range.begin);
  const PageId end = home_.page_of(range.begin + range.size - 1) + 1;
  for (StreamIndex stream = 0; stream < uses_.streams(); ++stream) {
    if (streams_.is_after_one(owner, stream, streams_.last_free(stream))) continue;
    // What was freed later in these pages is not of this hole.
    const Epoch epoch = std::min(uses_.last(stream, first, end), blocks_[hole].extra);
    if (epoch != 0 && !streams_.is_after_one(owner, stream, epoch)) f(stream, epoch);
  }
}

DriverStatus EarlierUsers::come_after(const Terms& terms, BlockId hole, UnitRange range) {
  const Owner owner = terms.owner();
  const Owner freed_by = blocks_[hole].owner;
  if (freed_by == owner || terms.unordered) return DriverStatus::ok;
  if (freed_by != kAnyone) {
    return streams_.order_after(owner, freed_by, home_.freed_in(hole, range));
  }
  DriverStatus status = DriverStatus::ok;
  for_each_before(owner, hole, range, [&](StreamIndex stream, Epoch epoch) {
    if (status == DriverStatus::ok) status = streams_.order_after_one(owner, stream, epoch);
  });
  return status;
}

DriverStatus EarlierUsers::come_after(const Terms& terms, const std::vector<UnitRange>& ranges) {
  for (const UnitRange& range : ranges) {
    DriverStatus status = DriverStatus::ok;
    home_.for_each_part(range, [&](BlockId hole, UnitRange part) {
      if (status == DriverStatus::ok) status = come_after(terms, hole, part);
    });
    if (status != DriverStatus::ok) return status;
  }
  return DriverStatus::ok;
}

Epoch EarlierUsers::busy_until(Owner owner, BlockId hole, UnitRange range) {
  const Owner freed_by = blocks_[hole].owner;
  if (freed_by == owner || takes_any_) return 0;
  Epoch until = 0;
  if (freed_by != kAnyone) {
    const Epoch epoch = home_.freed_in(hole, range);
    return streams_.ask_after(owner, freed_by, epoch) ? 0 : epoch;
  }
  for_each_before(owner, hole, range, [&](StreamIndex stream, Epoch epoch) {
    if (!streams_.ask_after_one(owner, stream, epoch)) until = std::max(until, epoch);
  });
  return until;
}

Epoch EarlierUsers::busy_until(Owner owner, const std::vector<UnitRange>& ranges) {
  Epoch until = 0;
  for (const UnitRange& range : ranges) {
    home_.for_each_part(range, [&](BlockId hole, UnitRange part) {
      until = std::max(until, busy_until(owner, hole, part));
    });
  }
  return until;
}

Bitmap EarlierUsers::busy_pages(Owner owner) {
  Bitmap busy(home_.max_pages());
  if (takes_any_) return busy;
  const Frames& frames = home_.frames();
  for (StreamIndex stream = 0; stream < uses_.streams(); ++stream) {
    if (streams_.ask_after_one(owner, stream, streams_.last_free(stream))) continue;
    uses_.for_each_page(stream, [&](PageId page, Epoch epoch) {
      if (busy.test(page) || !home_.is_present(page)) return;
      if (streams_.is_after_one(owner, stream, epoch)) return;
      busy.set_range(frames.begin(page), frames.end(page));
    });
  }
  return busy;
}

}  // namespace gapless
