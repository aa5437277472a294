// Terms: on what terms a request may have memory. Each way to place one is a short list of them.
//
//                                        whose memory           as far as       after its users
//   one stream                           its own                new pages       -
//   a pool's request                     the pool's             windows         waits
//                                        and everyone's         new pages       waits
//   a pool's, while a graph is captured  the stream's in it     windows         nobody to wait for
//                                        what is done, too      new pages       nobody to wait for
//
// Whom one need not wait for is a matter of the reach: what is done, or all but busy frames.
#pragma once

#include <cstdint>
#include <optional>

#include "allocator/heap/home.h"

namespace gapless {

/// How far the driver is troubled for a request.
enum class Effort : std::uint8_t {
  none,    // a hole of the home, or a place in a window as it is
  map,     // and a window mapped over free pages
  create,  // and new pages
};

struct Terms {
  Terms(Reach how_far, Effort up_to = Effort::create)  // NOLINT(google-explicit-constructor)
      : reach(how_far), effort(up_to) {}

  Reach reach;
  Effort effort;
  /// Nothing is waited for: the graph that is captured has the order, or the caller knows it.
  bool unordered = false;
  /// The block begins and ends with a page.
  bool whole_pages = false;
  /// Outside of pools: what pools can lend is everyone's first, and the home grows for copies.
  bool for_everyone = false;
  /// Beside whose holes the home grows, where that is not the reach.
  std::optional<Reach> grows_beside;

  [[nodiscard]] Owner owner() const { return reach.owner; }
  [[nodiscard]] Reach growth_reach() const { return grows_beside.value_or(reach); }
};

}  // namespace gapless
