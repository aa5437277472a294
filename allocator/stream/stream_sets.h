// StreamSets: who used a block. Streams get numbers in the order they are first seen, and so do
// sets of several streams: a block that was allocated on one stream and is used by others
// (record_stream).
//
//   owner 1   stream 0x0          owner 3   { 0x0, 0x7f10 }   allocated on the first of them
//   owner 2   stream 0x7f10
//
// 0 is nobody: memory that is good for everyone (kAnyone).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "allocator/driver/driver.h"
#include "allocator/heap/block.h"

namespace gapless {

/// A stream's place in the order in which streams were first seen, from 0.
using StreamIndex = std::uint16_t;

class StreamSets {
 public:
  /// The owner that is this stream alone; a new one where it was not seen before.
  Owner of_stream(StreamHandle stream) {
    if (last_ != 0 && last_handle_ == stream) return last_;
    return look_up(stream);
  }
  /// The set with that stream in it.
  Owner with(Owner owner, StreamHandle stream);

  /// The streams of a set, the one its blocks were allocated on first.
  [[nodiscard]] std::span<const StreamIndex> members(Owner owner) const {
    return sets_[owner - 1U];
  }
  [[nodiscard]] bool is_one_stream(Owner owner) const { return members(owner).size() == 1; }
  [[nodiscard]] StreamHandle handle(StreamIndex stream) const { return handles_[stream]; }
  /// The owner that is this stream alone.
  [[nodiscard]] Owner owner_of(StreamIndex stream) const { return alone_[stream]; }

  [[nodiscard]] std::size_t streams() const { return handles_.size(); }
  /// Owners are numbered from 1 to this.
  [[nodiscard]] std::size_t owners() const { return sets_.size(); }

 private:
  Owner look_up(StreamHandle stream);
  Owner add(std::vector<StreamIndex> set);

  std::vector<StreamHandle> handles_;           // by stream
  std::vector<Owner> alone_;                    // by stream
  std::vector<std::vector<StreamIndex>> sets_;  // by owner - 1
  Owner last_ = 0;
  StreamHandle last_handle_ = 0;
};

}  // namespace gapless
