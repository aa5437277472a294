// EarlierUsers: who used free memory before, on which streams, and how a request comes after them.
//
//   page        0    1    2    3        freed last by: stream 0 in epoch 7, stream 1 in epoch 9
//   hole        [    |    ]             a request of stream 2 there: both done?  nobody to wait for
//                                                            else  stream 2 waits, on the device
//
// Memory is everyone's, so that is asked of a place, not of an owner. The host never waits here.
// Without several streams nobody asks.
#pragma once

#include <vector>

#include "allocator/base/bitmap.h"
#include "allocator/device/options.h"
#include "allocator/device/terms.h"
#include "allocator/heap/home.h"
#include "allocator/stream/page_uses.h"
#include "allocator/stream/stream_ledger.h"

namespace gapless {

class EarlierUsers {
 public:
  EarlierUsers(Home& home, const BlockTable& blocks, StreamLedger& streams, CrossStream choice)
      : home_(home),
        blocks_(blocks),
        streams_(streams),
        takes_any_(choice == CrossStream::wait),
        uses_(home.max_pages()) {}

  /// All that is there was used by the only stream there was until now: nobody noted when.
  void note_all_used();
  /// A block that the owner used is about to be freed.
  void note(BlockId block, Owner owner, Epoch epoch);

  /// Lets the stream whose terms these are come after those who used that part of the hole.
  DriverStatus come_after(const Terms& terms, BlockId hole, UnitRange range);
  DriverStatus come_after(const Terms& terms, const std::vector<UnitRange>& ranges);
  /// When memory was freed there last that the owner would have to wait for; 0: nobody.
  Epoch busy_until(Owner owner, BlockId hole, UnitRange range);
  Epoch busy_until(Owner owner, const std::vector<UnitRange>& ranges);
  /// Frames that it would have to wait for, by page.
  [[nodiscard]] Bitmap busy_pages(Owner owner);

 private:
  /// Calls f(stream, epoch) for those that used that part of everyone's hole, freed in that epoch,
  /// which the owner's stream is not known to come after.
  template <class F>
  void for_each_before(Owner owner, BlockId hole, UnitRange range, F&& f) const;

  Home& home_;
  const BlockTable& blocks_;
  StreamLedger& streams_;
  bool takes_any_;  // memory is taken wherever it lies, whoever has to be waited for
  PageUses uses_;
};

}  // namespace gapless
