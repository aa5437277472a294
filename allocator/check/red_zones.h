// RedZones: bands around a block that nobody may write to.
//
//   [ 512 B ][ 1,000 B that were asked for ][ 536 B ]
//    before   ^ what the program gets        behind: to the block's end, 4 KiB at most
//
// A band begins at the byte: the word that the request ends in is filled whole before the program
// has written to it, and compared from the request's end on. Reading a band gives no number, too.
#pragma once

#include <algorithm>

#include "allocator/check/contents.h"
#include "allocator/check/mistake.h"

namespace gapless {

class RedZones {
 public:
  static constexpr std::uint64_t kBefore = 512;
  static constexpr std::uint64_t kLeastBehind = 512;
  static constexpr std::uint64_t kMostBehind = 4096;
  static constexpr std::uint32_t kWord = 0xfffdfffd;

  explicit RedZones(Contents& contents) : contents_(contents) {}

  /// Fills both bands, in order of the block's stream. `before`: bytes in front of the block.
  DriverStatus fill(const CheckedBlock& block, std::uint64_t before) {
    DriverStatus status =
        contents_.fill(block.address - before, block.address, kWord, block.stream);
    if (status == DriverStatus::ok) {
      status = contents_.fill(behind(block), end_of(block), kWord, block.stream);
    }
    return status;
  }

  /// tell(kind, difference) for each band that was written to; waits for the block's stream.
  template <class Tell>
  DriverStatus compare(const CheckedBlock& block, std::uint64_t before, const Tell& tell) {
    Difference difference;
    DriverStatus status =
        contents_.compare(block.address - before, block.address, kWord, block.stream, difference);
    if (difference.bytes != 0) tell(Mistake::Kind::before, difference);
    if (status == DriverStatus::ok) {
      status = contents_.compare(behind(block), end_of(block), kWord, block.stream, difference);
      if (difference.bytes != 0) tell(Mistake::Kind::behind, difference);
    }
    return status;
  }

 private:
  static DeviceAddress behind(const CheckedBlock& block) {
    return block.address + block.requested_bytes;
  }
  static DeviceAddress end_of(const CheckedBlock& block) {
    return std::min(block.end(), behind(block) + kMostBehind);
  }

  Contents& contents_;
};

}  // namespace gapless
