// RefusedMemory: what streams refuse to be waited for is out of every search's reach until the
// request is done.
//
//   stream 1, capturing   frees [ 4 | 5 | 6 ] in the capture: no event can say when that is done
//   stream 2 asks         4, 5 and 6 belong to "stream 1, aside", which is within no search's reach
//   afterwards            they are stream 1's again, as old as they were
#pragma once

#include <utility>
#include <vector>

#include "allocator/heap/home.h"
#include "allocator/stream/stream_ledger.h"

namespace gapless {

class RefusedMemory {
 public:
  RefusedMemory(Home& home, StreamLedger& streams) : home_(home), streams_(streams) {}

  /// Sets aside what is refused now, for a request of that owner. Whether there was more of it than
  /// before.
  bool set_aside(Owner owner);
  void take_back() {
    for (const auto& [owner, aside] : std::exchange(aside_, {})) home_.take_back(owner, aside);
  }

 private:
  /// As whose the owner's memory is set aside.
  Owner aside_of(Owner owner);

  Home& home_;
  StreamLedger& streams_;
  std::vector<std::pair<Owner, Owner>> aside_;  // whose memory is set aside, and as whose
};

}  // namespace gapless
