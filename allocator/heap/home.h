// Home: the one range in which every page of physical memory has its place.
//
//   page      0           1           2           3           4 (absent)
//   blocks  | live | hole      | live | hole                 |  absent ...
//             best fit, lowest first     \_ pages 2, 3: wholly free, may be lent to a window
//
// Sizes and offsets are in units of 512 B; nothing here knows an address or calls a driver. Blocks
// tile the range; a free block is merged with its free neighbours at once. With one stream that is
// all. With several a hole is everyone's (kAnyone), whoever used it last, with these exceptions,
// each with an owner: a piece of a page that one stream (or set of streams) freed, until it is
// settled; what streams free while they are held apart; private pools' memory. Two neighbouring
// holes stay apart only while they have different owners.
//
// A Reach says how far a search may go: the stream's own memory and anyone's, and what others freed
// up to some epoch. How old memory is is known by page, since a large hole is seldom freed at one
// time:
//
//   owner     1  1  1  1  2  2  any          Reach{2}      pages 4, 5, 6
//   epoch     3  3  9  9  8  9  2            Reach{2, 5}   pages 0, 1 and 4, 5, 6
//
// For the windows (windows.h) the home also answers by page: which pages are wholly free for an
// owner, and how much of a page's begin (prefix) or end (suffix) is.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "allocator/base/bitmap.h"
#include "allocator/heap/block.h"
#include "allocator/heap/frames.h"
#include "allocator/heap/size_bins.h"

namespace gapless {

struct PageRange {
  PageId first = 0;
  PageId count = 0;
};

struct UnitRange {
  Unit begin = 0;
  Unit size = 0;
};

/// Holes there are, were at most, and were ever made.
struct HoleTally {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  std::int64_t made = 0;
};

/// Where in which hole a request goes; hole 0: nowhere.
struct Fit {
  BlockId hole = 0;
  Unit begin = 0;
};

/// Where in a hole requests of some pages go.
enum class Side : std::uint8_t {
  fewest_pages,  // where they break the fewest wholly free pages
  begin,         // so that they keep the order in which they come
};

/// How far a search may go.
struct Reach {
  Reach(Owner of) : owner(of) {}  // NOLINT(google-explicit-constructor): an owner's own
  Reach(Owner of, Epoch up_to) : owner(of), others_up_to(up_to) {}
  /// In a private pool.
  Reach(Owner of, Epoch up_to, Owner anyone_of_it, std::uint16_t pool_of_others)
      : owner(of), others_up_to(up_to), anyone(anyone_of_it), others_pool(pool_of_others) {}

  Owner owner;
  /// Others' memory, freed in this epoch or before; 0: none.
  Epoch others_up_to = 0;
  /// Whose memory is good as it is, beside the owner's.
  Owner anyone = kAnyone;
  /// The pool whose owners the others are, and a second one.
  std::uint16_t others_pool = 0;
  std::uint16_t others_pool_too = others_pool;
  /// Frames that are not to be had, whosever they are, by page; none where this is not set.
  const Bitmap* except = nullptr;
};

class Home {
 public:
  /// Room for `max_pages` pages of `page_units` units (a power of two) each, all absent.
  /// max_pages * page_units must fit 32 bits.
  Home(BlockTable& blocks, Unit page_units, PageId max_pages);

  [[nodiscard]] Unit page_units() const { return page_units_; }
  [[nodiscard]] PageId max_pages() const { return max_pages_; }
  [[nodiscard]] PageId page_of(Unit unit) const { return page_down(unit); }
  [[nodiscard]] const Frames& frames() const { return frames_; }
  [[nodiscard]] PageId present_pages() const { return present_.count(); }
  [[nodiscard]] bool is_present(PageId page) const { return present_.test(page); }

  // --- pages come and go -----------------------------------------------------------------------

  /// Absent pages will come in frames of at most that order; or singly again.
  void join_absent(PageRange pages, FrameOrder most) {
    frames_.join(pages.first, pages.count, most);
  }
  void separate_absent(PageRange pages) { frames_.separate(pages.first, pages.count); }
  /// Absent pages become free memory of `owner`, as if freed in `epoch`.
  void add_pages(PageRange pages, Owner owner, Epoch epoch);
  /// Wholly free frames become absent pages.
  void remove_pages(PageRange pages);
  /// Where the fewest new pages would make a hole of `size` units within reach: absent pages beside
  /// a hole the owner may use. The lowest of equals; nothing where there is no room. A barrier
  /// keeps one absent page to each side (memory that is not contiguous with its neighbours).
  [[nodiscard]] std::optional<PageRange> growth_for(Unit size, Reach reach, bool barrier) const;
  /// The hole within reach that ends where absent page `first` begins: new memory there is best its
  /// owner's, to be one hole with it. 0: there is none.
  [[nodiscard]] BlockId hole_below(PageId first, Reach reach) const;
  /// Those absent pages and the ones behind them up to the end of a frame of that order, where all
  /// of these are absent.
  [[nodiscard]] PageRange absent_to_frame_end(PageRange pages, FrameOrder order) const;
  /// The lowest absent pages, at most `count`, in one run.
  [[nodiscard]] std::optional<PageRange> absent_run(PageId count) const;

  // --- blocks ----------------------------------------------------------------------------------

  /// Best fit: the smallest hole of at least `size` units that `owner` may use, the lowest of
  /// these, at its begin. Requests of about a page to some go where they break the fewest wholly
  /// free pages: to either end of one of the few smallest holes that fit. To larger ones a page is
  /// little; at the begin they leave what will be free together, as do all where that is asked for.
  /// Those of whole pages go to a page's begin, where such a hole has room from there on. In the
  /// hole before absent pages all go to its begin, as they did when these pages came.
  ///
  ///   pages       |       |       |       |       |
  ///   hole           [.......................]          a request of 1.5 pages:
  ///   at its begin   [xxxxxxxxxxxx...........]          breaks 2 of 2 whole pages
  ///   at its end     [...........xxxxxxxxxxxx]          breaks 1
  /// Of the places that fit() would look at and a few more, the owner's memory first, the first for
  /// which good(fit) holds; hole 0: none of them.
  template <class Good>
  [[nodiscard]] Fit fit_where(Unit size, Owner owner, Owner anyone, Side side, Good&& good) const;
  [[nodiscard]] Fit fit(Unit size, Owner owner, Owner anyone = kAnyone,
                        Side side = Side::fewest_pages) const {
    const BlockId hole = best_fit(size, owner, anyone);
    if (hole == 0 || size < kLargeUnits) return {hole, blocks_[hole].begin};
    return fit_by_pages(hole, size, side);
  }
  /// Cuts `range` out of a hole; the block that covers it now has that state.
  BlockId carve(BlockId hole, UnitRange range, BlockState state);
  /// A carved block becomes free memory of `owner`; merged with its neighbours.
  void free(BlockId block, Owner owner, Epoch epoch);

  // --- owners ----------------------------------------------------------------------------------

  /// From now on, with several streams: every page remembers when memory in it was freed last
  /// (`now` where that is not known), and a stream takes its own memory before anyone's.
  void tell_streams_apart(Epoch now);
  /// Whether what streams free stays theirs until it is settled; else only pieces of a page do.
  void hold_streams_apart(bool apart) { holds_apart_ = apart; }
  [[nodiscard]] bool holds_streams_apart() const { return holds_apart_; }
  /// Holes of `owner` freed in epoch `last` or before belong to `anyone` from now on.
  /// Whether there were any. `stamp`: as if freed in that epoch.
  bool settle(Owner owner, Epoch last, Owner anyone = kAnyone, std::optional<Epoch> stamp = {});
  /// Memory of `owner` that was freed after epoch `last` belongs to `aside` until it is taken back,
  /// page by page: for the time of one request, which cannot have it. Whether there was any.
  bool set_aside(Owner owner, Epoch last, Owner aside);
  void take_back(Owner owner, Owner aside);
  /// That owner is of a private pool.
  void note_pool(Owner owner, std::uint16_t pool);
  /// Calls f(hole, part) for the holes that a free range is made of, by address; pages touch it
  /// (hole_at). f may carve the part.
  template <class F>
  void for_each_part(UnitRange range, F&& f) {
    const Unit end = range.begin + range.size;
    BlockId hole = hole_at(range.begin);
    for (Unit at = range.begin; at < end;) {
      const BlockId next = blocks_[hole].next;
      const Unit part = std::min(end, blocks_[hole].end()) - at;
      f(hole, UnitRange{at, part});
      at += part;
      hole = next;
    }
  }
  /// Whether that range is free in one hole within reach; pages touch it (hole_at).
  [[nodiscard]] bool is_free(UnitRange range, Reach reach) const;
  /// When memory in that part of a hole was freed last.
  [[nodiscard]] Epoch freed_in(BlockId hole, UnitRange range) const;
  /// Others' memory that a request of `size` units fits into, in the smallest of the holes looked
  /// at; hole 0: none.
  [[nodiscard]] Fit fit_among_others(Unit size, Reach reach) const;

  // --- the view by page ------------------------------------------------------------------------

  // Pages that are wholly free are those of wholly free frames.

  /// Whether all of the page's frame is free and within reach.
  [[nodiscard]] bool is_free(PageId page, Reach reach) const {
    const bool free = owned_page(page, reach.anyone) ||
                      (reach.owner != kAnyone && owned_page(page, reach.owner)) ||
                      (reach.others_up_to != 0 && others_page(page, reach)) ||
                      (mixed_.count() != 0 && mixed_.test(page) && mixed_page(page, reach));
    return free && !is_excepted(page, reach);
  }
  /// All pages for which that holds: for who asks of most of them. FreePages is for who asks of
  /// some.
  [[nodiscard]] Bitmap pages_within(Reach reach) const;
  /// How many pages are wholly free.
  [[nodiscard]] PageId free_pages(Reach reach) const;
  /// The runs of wholly free pages, by address.
  [[nodiscard]] std::vector<PageRange> free_runs(Reach reach) const;
  /// Units of a hole that are wholly free pages.
  [[nodiscard]] Unit in_free_pages(const Block& hole) const {
    const PageId begin = frame_up(hole.begin);
    const PageId end = frame_down(hole.end());
    return end > begin ? (end - begin) << page_shift_ : 0;
  }
  /// Units free at the end of a frame that is not wholly free, whose last page that is.
  [[nodiscard]] Unit free_suffix(PageId page, Reach reach) const;
  /// Units free at the begin of a frame that is not wholly free, whose first page that is.
  [[nodiscard]] Unit free_prefix(PageId page, Reach reach) const;
  /// Whether the part of a hole that lies in that page's frame is within reach.
  [[nodiscard]] bool is_within(const Block& hole, PageId page, Reach reach) const {
    const bool within =
        usable(hole, reach) ||
        (reach.others_up_to != 0 && may_be_other(hole.owner, reach) &&
         (hole.extra <= reach.others_up_to || page_epoch_[page] <= reach.others_up_to));
    return within && !is_excepted(page, reach);
  }
  /// The hole that contains that unit, which must be free. Quick where the hole touches a frame's
  /// boundary (a wholly free frame, a suffix or a prefix).
  [[nodiscard]] BlockId hole_at(Unit unit) const;
  /// The same, of holes that touch one; 0 where there is none.
  [[nodiscard]] BlockId find_hole(Unit unit) const;

  /// Whether more memory lies in free ends of partly used pages than in free begins. Who leaves a
  /// piece of a page free then leaves its begin: a window uses one of each.
  [[nodiscard]] bool prefers_free_prefix() const { return suffix_units_ > prefix_units_; }

  // --- sums ------------------------------------------------------------------------------------

  [[nodiscard]] std::uint64_t free_units() const { return free_units_; }
  [[nodiscard]] const HoleTally& holes() const { return tally_; }
  void reset_hole_peak() { tally_.peak = tally_.current; }
  /// The largest hole that `owner` may use, its own first; 0 where there is none.
  [[nodiscard]] BlockId largest_hole(Owner owner, Owner anyone = kAnyone) const;

  /// Calls f(id, block) for every block from the lowest to the highest address.
  template <class F>
  void for_each(F&& f) const {
    for (BlockId id = first_; id != 0; id = blocks_[id].next) f(id, blocks_[id]);
  }
  /// Calls f(id) for every hole some part of which may be within reach (is_within).
  template <class F>
  void for_each_hole(Reach reach, F&& f) const {
    for (std::size_t i = 0; i < holes_.size(); ++i) {
      const auto owner = static_cast<Owner>(i);
      const bool wanted = owner == reach.anyone || owner == reach.owner || reach.others_up_to != 0;
      if (wanted && holes_[owner]) holes_[owner]->bins.for_each(f);
    }
  }

  /// Throws std::logic_error saying what is wrong, if anything is. O(blocks + pages).
  void validate() const;

 private:
  friend struct RuleBreaker;  // of the tests of validate()
  friend class FreePages;

  // The holes of one owner.
  struct Holes {
    Holes(BlockTable& blocks, PageId max_pages) : bins(blocks), pages(max_pages) {}
    SizeBins bins;
    Bitmap pages;  // wholly free
  };

  static constexpr Owner kNobody = UINT16_MAX;
  // Requests from 1 MiB on are worth a look at pages, and up to so many pages at several holes.
  static constexpr Unit kLargeUnits = 2048;
  static constexpr PageId kManyPages = 16;

  [[nodiscard]] BlockId best_fit(Unit size, Owner owner, Owner anyone) const;
  /// Of a stream's own hole and anyone's, the one that a request goes to.
  [[nodiscard]] BlockId better_of(BlockId mine, BlockId common) const;
  /// Requests of so many pages or more are placed for what they leave together (fit).
  [[nodiscard]] bool is_of_many_pages(Unit size) const { return size >= kManyPages << page_shift_; }
  [[nodiscard]] Fit fit_by_pages(BlockId first, Unit size, Side side) const;
  /// The same in that hole, which is large enough.
  [[nodiscard]] Fit fit_in(BlockId hole, Unit size, Side side) const;
  /// Wholly free pages of a hole that would not be so any more with [begin, begin + size) used.
  [[nodiscard]] PageId pages_broken(const Block& hole, UnitRange used) const;

  [[nodiscard]] Holes* holes_of(Owner owner) const {
    return owner < holes_.size() ? holes_[owner].get() : nullptr;
  }
  Holes& make_holes_of(Owner owner);
  [[nodiscard]] bool owned_page(PageId page, Owner owner) const {
    Holes* own = holes_of(owner);
    return own != nullptr && own->pages.test(page);
  }
  [[nodiscard]] static bool usable(const Block& hole, Reach reach) {
    return hole.owner == reach.anyone || hole.owner == reach.owner;
  }
  [[nodiscard]] static bool is_excepted(PageId page, Reach reach) {
    return reach.except != nullptr && reach.except->test(page);
  }
  /// Units free at the end of a hole, within reach.
  [[nodiscard]] Unit free_end(const Block& hole, Reach reach) const;
  [[nodiscard]] bool may_be_other(Owner owner, Reach reach) const {
    const std::uint16_t pool = pool_of(owner);
    return pool == reach.others_pool || pool == reach.others_pool_too;
  }
  [[nodiscard]] std::uint16_t pool_of(Owner owner) const {
    return owner < pool_of_.size() ? pool_of_[owner] : std::uint16_t{0};
  }
  /// Whose hole the page is wholly free in; kNobody where it is in none.
  [[nodiscard]] Owner page_owner(PageId page) const {
    if (!page_owner_.empty()) return page_owner_[page];
    for (std::size_t i = 0; i < holes_.size(); ++i) {
      const auto owner = static_cast<Owner>(i);
      if (holes_[owner] && holes_[owner]->pages.test(page)) return owner;
    }
    return kNobody;
  }
  [[nodiscard]] bool others_page(PageId page, Reach reach) const;
  /// Whether a page that several owners' holes may share is free and within reach.
  [[nodiscard]] bool mixed_page(PageId page, Reach reach) const;
  /// Notes the pages where a hole meets other owners' holes.
  void note_mixed(BlockId hole);
  /// Calls f(holes) for the others within reach, whenever they freed.
  template <class F>
  void for_each_other(Reach reach, F&& f) const {
    for (std::size_t i = 0; i < holes_.size(); ++i) {
      const auto other = static_cast<Owner>(i);
      if (other != reach.owner && other != reach.anyone && holes_[other] &&
          may_be_other(other, reach)) {
        f(*holes_[other]);
      }
    }
  }
  /// Where in that hole of another owner a request fits; hole 0: nowhere.
  [[nodiscard]] Fit fit_in_part(BlockId hole, Unit size, Epoch up_to) const;
  /// Whether a range touches no page boundary.
  [[nodiscard]] bool lies_inside_page(Unit begin, Unit end) const {
    return end < page_up(begin) << page_shift_;
  }
  /// Whether a hole's begin may go there and by page nothing changes but the size of a free end.
  [[nodiscard]] bool stays_inside_page(Unit old_begin, Unit begin) const {
    const Unit inside = page_units_ - 1;
    return ((old_begin ^ begin) & ~inside) == 0 && (old_begin & inside) != 0 &&
           (begin & inside) != 0;
  }
  [[nodiscard]] PageId page_up(Unit unit) const {
    return static_cast<PageId>((std::uint64_t{unit} + page_units_ - 1) >> page_shift_);
  }
  [[nodiscard]] PageId page_down(Unit unit) const { return unit >> page_shift_; }
  // The same to whole frames.
  [[nodiscard]] PageId frame_up(Unit unit) const { return frames_.up(page_up(unit)); }
  [[nodiscard]] PageId frame_down(Unit unit) const { return frames_.begin(page_down(unit)); }

  /// Adds a hole that reaches a page boundary to what is known by page, or takes it away.
  void note_boundary(BlockId hole, bool there);
  /// Files a hole in its owner's bins, and at the page boundaries it touches.
  void file(BlockId hole);
  void unfile(BlockId hole);
  /// The same where it touches no page boundary, and its owner has bins.
  void file_inside_page(BlockId hole);
  void unfile_inside_page(BlockId hole);
  /// A filed hole gives away or takes in memory at its begin or its end; at least one unit stays.
  void move_begin(BlockId hole, Unit begin);
  void move_end(BlockId hole, Unit end);
  /// The same where page boundaries are met.
  [[gnu::noinline]] void reshape(BlockId hole, Unit begin, Unit end);
  /// Sets or clears the bits of the wholly free pages of a hole that touch `within`.
  void mark_pages(const Block& hole, UnitRange within, bool free);
  /// A filed hole belongs to someone else from now on.
  void change_owner(BlockId hole, Owner owner, Epoch epoch);
  /// carve() where the hole does not simply begin later.
  [[gnu::noinline]] BlockId carve_elsewhere(BlockId hole, UnitRange range, BlockState state);
  /// free() where the hole behind it does not simply begin earlier.
  [[gnu::noinline]] void free_elsewhere(BlockId block, Owner owner, Epoch epoch);
  /// free() where a neighbour is another owner's hole.
  void free_beside_others(BlockId block, Owner owner, Epoch epoch);
  /// free() of memory in no pool, with several streams that are not held apart.
  void free_for_everyone(BlockId block, Owner owner, Epoch epoch);
  /// A block becomes free memory, joined with the holes before and behind it (0: not with that);
  /// the hole it is part of then.
  BlockId join(BlockId block, BlockId next, BlockId prev, Owner owner, Epoch epoch);
  /// Takes a block out of the chain of neighbours and recycles it.
  void unlink(BlockId block);
  /// Gives the parts of a hole to `aside` that were freed after that epoch.
  void split_aside(BlockId hole, Epoch last, Owner aside);
  /// Merges a filed hole with its neighbours of the same owner; the hole that this makes.
  BlockId merge(BlockId hole);
  /// A block that is not in the chain of neighbours yet.
  BlockId make_block(UnitRange range, BlockState state);
  BlockId insert_after(BlockId before, UnitRange range, BlockState state);
  BlockId insert_before(BlockId after, UnitRange range, BlockState state);

  BlockTable& blocks_;
  Unit page_units_;
  unsigned page_shift_;  // page_units_ == 1 << page_shift_
  PageId max_pages_;
  Frames frames_;
  BlockId first_ = 0;
  std::uint64_t free_units_ = 0;
  HoleTally tally_;
  bool holds_apart_ = false;
  std::int64_t holes_by_aside_ = 0;  // holes there are only because memory is set aside
  std::uint64_t suffix_units_ = 0;   // in holes that are the end of one page
  std::uint64_t prefix_units_ = 0;   // in holes that are the begin of one page
  Bitmap present_;
  std::vector<std::unique_ptr<Holes>> holes_;  // by owner
  std::vector<std::uint16_t> pool_of_;         // by owner; those beyond its end are of pool 0
  // Pages inside which holes of different owners met; they may be in use again.
  mutable Bitmap mixed_;
  std::vector<Owner> page_owner_;  // by page: whose hole it is wholly free in, or kNobody
  std::vector<Epoch> page_epoch_;  // by page: when memory in it was freed last; empty: one stream
  // For each frame's boundary: the hole whose first boundary it is, if the hole goes on past it
  // (starts_), and the hole that begins inside the frame below and reaches it (suffix_).
  std::vector<BlockId> starts_;
  std::vector<BlockId> suffix_;
  // The absent blocks, by address.
  std::vector<BlockId> absent_;
};

}  // namespace gapless

#include "allocator/heap/home_inline.h"  // IWYU pragma: export
