// DeviceHeap with several streams in use: free memory is everyone's, and who takes it comes after
// those who used it.
//
//   a hole nobody has to be waited for       of the smallest that fit
//   a place in a window, the same
//   memory that is done, and new memory      within the budget for streams
//   a hole or a place, with a wait           that was used longest ago
//   a window over all that is free           with a wait for whoever used it
//
// Who used what is known by page (page_uses.h). A piece of a page that one stream freed stays that
// stream's until an epoch ends: small blocks are asked for again and again, and a piece that is in
// use still would keep all of its page from others.
//
// While a graph may be captured what streams free stays theirs, side by side in the home: of one
// page that a stream has freed a part of nothing could be had then, if that stream refuses.
#include <algorithm>

#include "allocator/base/bytes.h"
#include "allocator/device/device_heap.h"

namespace gapless {
namespace {

// Pieces of a page that were freed so many epochs ago are everyone's; four cost more memory
// (docs/experiments/several-streams.md).
constexpr Epoch kSettledAfter = 1;

}  // namespace

// Of the places that a request could go to the one that nobody has to be waited for, or else the
// one that was used longest ago.
class DeviceHeap::Choice {
 public:
  Choice(DeviceHeap& heap, Owner owner, Unit size) : heap_(heap), owner_(owner), size_(size) {}

  /// Whether nobody has to be waited for there.
  bool operator()(const Fit& fit) {
    const Epoch until = heap_.earlier_.busy_until(owner_, fit.hole, {fit.begin, size_});
    if (until < until_) {
      until_ = until;
      fit_ = fit;
      spot_.reset();
    }
    return until == 0;
  }
  void note(const WindowSpot& spot) {
    const Epoch until = heap_.earlier_.busy_until(owner_, heap_.windows().home_ranges(spot));
    if (until >= until_) return;
    until_ = until;
    spot_ = spot;
  }
  /// All that there is now: holes and windows that were looked at before may be gone.
  void look_again(Reach reach) {
    until_ = kNoEpoch;
    (void)heap_.placement_.fit_where(size_, owner_, *this);
    if (reach.others_up_to != 0) {
      const Fit fit = heap_.home_.fit_among_others(size_, reach);
      if (fit.hole != 0) (void)(*this)(fit);
    }
    if (!heap_.use_windows()) return;
    heap_.windows().for_each_spot(size_, reach, [&](const WindowSpot& spot) { note(spot); });
  }
  /// Whether there is a place at all.
  [[nodiscard]] bool any() const { return until_ != kNoEpoch; }
  /// The request in that place.
  [[nodiscard]] Placed place() const {
    const Terms terms{Reach(owner_)};
    return spot_ ? heap_.in_window(*spot_, terms) : heap_.in_hole_of_any(fit_, size_, terms);
  }

 private:
  DeviceHeap& heap_;
  Owner owner_;
  Unit size_;
  Epoch until_ = kNoEpoch;
  Fit fit_;
  std::optional<WindowSpot> spot_;
};

void DeviceHeap::note_streams() {
  if (stream_demand_.streams() == streams_.streams() &&
      holds_apart() == home_.holds_streams_apart())
    return;
  if (stream_demand_.streams() == 0) {
    home_.tell_streams_apart(streams_.now());
    earlier_.note_all_used();
  }
  stream_demand_.resize(streams_.streams());
  home_.hold_streams_apart(holds_apart());
  if (!holds_apart()) settle_all();
}

DeviceHeap::Placed DeviceHeap::in_hole_of_any(const Fit& fit, Unit size, const Terms& terms) {
  if (streams_.several()) {
    const DriverStatus status = earlier_.come_after(terms, fit.hole, {fit.begin, size});
    if (status != DriverStatus::ok) return failure(status);
  }
  return in_hole(fit, size);
}

// --- the order of choices ------------------------------------------------------------------------

DeviceHeap::Placed DeviceHeap::place_among_streams(Unit size, Owner owner, const Demand& demand) {
  const Request request(*this);
  note_streams();
  stream_demand_.note_request(streams_.sets().members(owner).front(), size);
  Choice choice(*this, owner, size);
  if (const Fit fit = placement_.fit_where(size, owner, choice); fit.hole != 0) {
    const Placed placed = in_hole_of_any(fit, size, Reach(owner));
    if (placed.block != 0) return placed;
  }
  return place_after_miss(size, owner, demand);
}

DeviceHeap::Placed DeviceHeap::search_among_streams(Unit size, Owner owner, const Demand& demand) {
  Choice choice(*this, owner, size);
  if (const Fit fit = placement_.fit_where(size, owner, choice); fit.hole != 0) {
    const Placed placed = in_hole_of_any(fit, size, Reach(owner));
    if (ends_search(placed)) return placed;
  }
  Reach all(owner);
  if (home_.holds_streams_apart() && options_.cross_stream != CrossStream::never) {
    all.others_up_to = streams_.now();
    const Fit fit = home_.fit_among_others(size, all);
    if (fit.hole != 0 && choice(fit)) {
      const Placed placed = in_hole_of_any(fit, size, Reach(owner));
      if (ends_search(placed)) return placed;
    }
  }
  const Bitmap busy = earlier_.busy_pages(owner);
  Reach done = all;
  done.except = &busy;
  if (use_windows()) {
    if (const auto spot = mapper_.find(size, done)) {
      const Placed placed = in_window(*spot, Reach(owner));
      if (ends_search(placed)) return placed;
    }
    windows().for_each_spot(size, all, [&](const WindowSpot& spot) { choice.note(spot); });
  }
  if (take_from_pools(size, all)) return search_again(size, owner, demand);
  if (busy.count() != 0) {
    const auto tried = place_without_wait(size, done, choice.any(), demand);
    const Placed placed = tried.value_or(failure());
    if (ends_search(placed)) return placed;
    if (tried) choice.look_again(all);
  }
  if (choice.any()) {
    const Placed placed = choice.place();
    if (ends_search(placed)) return placed;
  }
  Terms terms{all};
  terms.for_everyone = true;
  return place_on(size, terms, demand);
}

std::optional<DeviceHeap::Placed> DeviceHeap::place_without_wait(Unit size, Reach done,
                                                                 bool may_wait,
                                                                 const Demand& demand) {
  const auto growth = home_.growth_for(size, done, !vmm_);
  std::uint64_t missing = growth ? growth->count : UINT64_MAX / page_bytes_;
  if (use_windows()) {
    missing = std::min<std::uint64_t>(missing, mapper_.plan(size, done).missing);
    // What is done differs from step to step, and so would the windows.
    if (missing == 0 && may_wait && windows().mapped_pages() > home_.present_pages()) {
      return {};
    }
  }
  if (!within_budget(missing, demand)) return {};
  if (!growth && !use_windows()) return {};
  return map_window_or_grow(size, done, growth);
}

void DeviceHeap::free_among_streams(BlockId block, Owner owner) {
  note_streams();
  const Unit size = blocks_[block].size;
  const Epoch epoch = streams_.note_free(owner);
  earlier_.note(block, owner, epoch);
  free_block(block, owner, epoch);
  if (streams_.watches_captures() && streams_.sets().pool_of(owner) != 0) {
    streams_.note_captured_free(block, owner);
  }
  const Epoch before = streams_.now();
  for (const StreamIndex stream : streams_.sets().members(owner)) {
    if (streams_.sets().pool_of(owner) != 0) break;
    // A stream the program has destroyed refuses; who wants its memory waits for the device then.
    if (stream_demand_.note_free(stream, size, reserved_bytes())) (void)streams_.end_epoch(stream);
  }
  if (streams_.now() != before && !home_.holds_streams_apart()) settle(kSettledAfter);
}

void DeviceHeap::settle(Epoch age) {
  if (streams_.now() <= age) return;
  for (std::size_t owner = 1; owner <= streams_.sets().owners(); ++owner) {
    if (streams_.sets().pool_of(static_cast<Owner>(owner)) != 0) continue;
    home_.settle(static_cast<Owner>(owner), streams_.now() - age);
  }
}

bool DeviceHeap::within_budget(std::uint64_t missing, const Demand& demand) const {
  if (!room_.is_known_for(missing)) return false;
  if (missing == 0 || options_.cross_stream == CrossStream::completed) return true;
  const double share = static_cast<double>(demand.peak_bytes) * options_.stream_budget / 100;
  const std::uint64_t budget =
      std::min(static_cast<std::uint64_t>(share), stream_demand_.budget_bytes());
  const std::uint64_t allowed = std::max(copies_allowance(), demand.peak_bytes + budget);
  return reserved_bytes() + missing * page_bytes_ <= allowed;
}

}  // namespace gapless
