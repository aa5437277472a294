// CaptureOrder: what the order of a graph that is being captured proves about memory freed in it.
//
//   stream 1   a ---- b . free X          X was used by a and b; "." is the node the stream is at
//   stream 2          '-- c ---- d        c comes after b: X may be had again by d
//   stream 3   e                          e does not
//
// At each free the nodes are noted that the streams which used the block are at. Later work of
// another stream comes after the block's uses, whenever the graph runs, if each of these nodes is
// among those that this stream's next work comes after.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "allocator/driver/driver.h"
#include "allocator/heap/block.h"

namespace gapless {

class CaptureOrder {
 public:
  explicit CaptureOrder(Driver& driver) : driver_(driver) {}

  /// A block was made for a stream that is being captured.
  void note_made(BlockId block, const DeviceStream& stream);
  /// A block was freed in that epoch which these streams used. Where it was not made in the same
  /// capture (no graph shows all its uses then), or the streams are not all captured into one
  /// graph, or the driver does not say, nothing is known of what the owner frees until forget().
  void note_free(BlockId block, Owner owner, Epoch epoch, std::span<const DeviceStream> streams);
  /// Up to which epoch the stream's next work comes after all that the owner freed; 0: none.
  Epoch before(const DeviceStream& user, Owner freed_by);
  /// No graph is captured any more.
  void forget();

 private:
  // Where an owner's streams were when it freed.
  struct Mark {
    Epoch epoch = 0;
    std::uint64_t capture = 0;
    std::vector<std::uint64_t> nodes;
  };
  /// The nodes that the stream's next work comes after.
  [[nodiscard]] bool find_ancestors(DeviceIndex device, const CapturePoint& point);
  [[nodiscard]] const std::vector<std::uint64_t>* dependencies(DeviceIndex device,
                                                               std::uint64_t node);

  Driver& driver_;
  std::unordered_map<Owner, std::vector<Mark>> marks_;  // by epoch
  std::unordered_set<Owner> unknown_;                   // freed where nothing is known
  std::unordered_map<BlockId, std::uint64_t> made_in_;  // the capture, by block
  // What was asked: a node's dependencies do not change; and the last answer.
  std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> dependencies_;
  CapturePoint last_point_;
  std::unordered_set<std::uint64_t> ancestors_;  // of last_point_
};

}  // namespace gapless
