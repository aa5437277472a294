// StreamSets: who used a block. Streams get numbers in the order they are first seen, and so do
// sets of several streams: a block that was allocated on one stream and is used by others
// (record_stream).
//
//   owner 1   stream 0x0          owner 3   { 0x0, 0x7f10 }   allocated on the first of them
//   owner 2   stream 0x7f10       owner 4   stream 0x0 in private pool 1
//                                 owner 5   anyone in private pool 1
//
// 0 is nobody: memory that is good for everyone (kAnyone). Private pools have owners of their own,
// so that what is theirs is nobody else's; pool 0 is the one for everyone. A block is allocated on
// a stream of its own device; streams of other devices may use it too.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "allocator/driver/driver.h"
#include "allocator/heap/block.h"

namespace gapless {

/// A stream's place in the order in which streams were first seen, from 0.
using StreamIndex = std::uint16_t;

/// A private pool's place in the order in which they were made, from 1; 0: no private pool.
using PoolIndex = std::uint16_t;

class StreamSets {
 public:
  explicit StreamSets(DeviceIndex device) : device_(device) {}

  /// The owner that is this stream of the device alone; a new one where it was not seen before.
  Owner of_stream(StreamHandle stream) {
    if (!is_last(stream)) {
      last_ = look_up({device_, stream});
      last_handle_ = stream;
    }
    return last_;
  }
  /// Whether that was the last one asked for.
  [[nodiscard]] bool is_last(StreamHandle stream) const {
    return last_handle_ == stream && last_ != 0;
  }
  [[nodiscard]] Owner last() const { return last_; }
  /// The set with that stream in it.
  Owner with(Owner owner, const DeviceStream& stream);

  /// The same set in that pool.
  Owner in_pool(Owner owner, PoolIndex pool);
  /// Anyone in that pool; kAnyone for pool 0.
  Owner anyone_in(PoolIndex pool) { return pool == 0 ? kAnyone : intern({pool, {}}); }
  [[nodiscard]] PoolIndex pool_of(Owner owner) const {
    return owner == kAnyone ? PoolIndex{0} : sets_[owner - 1U].pool;
  }

  /// The streams of a set, the one its blocks were allocated on first; none: anyone.
  [[nodiscard]] std::span<const StreamIndex> members(Owner owner) const {
    if (owner == kAnyone) return {};
    return sets_[owner - 1U].streams;
  }
  [[nodiscard]] bool is_one_stream(Owner owner) const { return members(owner).size() == 1; }
  [[nodiscard]] const DeviceStream& stream(StreamIndex stream) const { return streams_[stream]; }
  /// The owner that is this stream alone.
  [[nodiscard]] Owner owner_of(StreamIndex stream) const { return alone_[stream]; }

  [[nodiscard]] std::size_t streams() const { return streams_.size(); }
  /// Owners are numbered from 1 to this.
  [[nodiscard]] std::size_t owners() const { return sets_.size(); }

 private:
  struct Set {
    PoolIndex pool = 0;
    std::vector<StreamIndex> streams;

    bool operator==(const Set&) const = default;
  };
  Owner look_up(const DeviceStream& stream);
  Owner add(Set set);
  /// The set's owner; made where there is none yet.
  Owner intern(const Set& set);

  DeviceIndex device_;
  std::vector<DeviceStream> streams_;
  std::vector<Owner> alone_;  // by stream
  std::vector<Set> sets_;     // by owner - 1
  Owner last_ = 0;
  StreamHandle last_handle_ = 0;
};

}  // namespace gapless
