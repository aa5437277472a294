// StreamDemand: what each stream asks for and frees, which says how much memory it is worth to
// spare a wait, and when an epoch is to end.
//
//   stream      largest request    freed since its last event
//   1           300 MiB            ||||||........   an epoch ends when it is a 64th of all memory
//   2            40 MiB            ||............
//   budget       40 MiB            all but the largest of these: what they may need at one time
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "allocator/stream/stream_sets.h"

namespace gapless {

class StreamDemand {
 public:
  [[nodiscard]] std::size_t streams() const { return streams_.size(); }
  void resize(std::size_t streams) { streams_.resize(streams); }

  void note_request(StreamIndex stream, Unit size) {
    streams_[stream].largest = std::max(streams_[stream].largest, size);
  }
  /// Whether an epoch of the stream ends with that free: one that ends is begun anew.
  bool note_free(StreamIndex stream, Unit size, std::uint64_t reserved_bytes) {
    std::uint64_t& open = streams_[stream].open_units;
    open += size;
    if (open * kUnitBytes * kEpochsPerMemory < reserved_bytes) return false;
    open = 0;
    return true;
  }
  /// What streams beside the one with the largest requests may need at a time.
  [[nodiscard]] std::uint64_t budget_bytes() const {
    std::uint64_t sum = 0;
    Unit largest = 0;
    for (const Stream& stream : streams_) {
      sum += stream.largest;
      largest = std::max(largest, stream.largest);
    }
    return (sum - largest) * kUnitBytes;
  }

 private:
  // Shorter epochs mean shorter waits and more events. Measured,
  // docs/experiments/several-streams.md.
  static constexpr std::uint64_t kEpochsPerMemory = 64;

  struct Stream {
    std::uint64_t open_units = 0;  // freed since its last event
    Unit largest = 0;              // its largest request
  };
  std::vector<Stream> streams_;
};

}  // namespace gapless
