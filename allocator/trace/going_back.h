// GoingBack: the segments of a snapshot, undone event by event from its end, as PyTorch's viewer
// does.
//
//   at the end   [ 0 ---- 4 ) everyone's   [ 4 ---- 8 ) a pool's
//   map [0, 8)   is undone: the viewer wants one segment that has all of it, and ends with an error
//   so it is     map [0, 4), map [4, 8)
//
// Memory that one event brought may belong to several segments later, by pool or by stream. What an
// event is split into here can be undone.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace gapless {

class GoingBack {
 public:
  struct Range {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
  };

  /// A segment that is there at the end.
  void add(Range segment, std::uint64_t stream);
  /// Before memory was mapped there: the pieces in which that is to be told, by address, each of
  /// which lay in one segment. One piece where that held all of it, or some of it lay in none.
  std::vector<Range> undo_map(Range mapped);
  /// Before memory was unmapped there: a segment again, joined with neighbours of that stream.
  void undo_unmap(Range unmapped, std::uint64_t stream);

 private:
  struct Segment {
    std::uint64_t end = 0;
    std::uint64_t stream = 0;
  };
  std::vector<Range> cut_out(Range range);

  std::map<std::uint64_t, Segment> segments_;  // by begin
};

}  // namespace gapless
