// Poison: what free memory and memory that was never written hold, so that whoever reads it sees.
//
//   freed         ffffffff ffffffff ...   not a number in every floating-point type; -1
//   handed out    fffefffe fffefffe ...   not a number either, and another one
//
// Freed memory that does not hold its poison any more when it is given out again was written after
// it was freed. Which memory was poisoned is kept by its address in the home, where every byte has
// one, whatever window a block lay in.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "allocator/base/range_set.h"
#include "allocator/check/contents.h"
#include "allocator/check/mistake.h"

namespace gapless {

class Poison {
 public:
  /// Both are not a number in float64, float32, float16 and bfloat16.
  static constexpr std::uint32_t kFreed = 0xffffffff;
  static constexpr std::uint32_t kNew = 0xfffefffe;

  using Ranges = std::span<const RangeSet::Range>;

  explicit Poison(Contents& contents) : contents_(contents) {}

  /// The block's memory, in its order, is given out for work on the stream: what of it was written
  /// since it was freed is told to `tell`, and it is poisoned as new.
  template <class Tell>
  DriverStatus take(Ranges ranges, StreamHandle stream, const Tell& tell) {
    DriverStatus status = DriverStatus::ok;
    for (const RangeSet::Range& range : ranges) {
      for (const RangeSet::Range& part : poisoned_.inside(range.begin, range.end)) {
        Difference difference;
        if (status == DriverStatus::ok) {
          status = contents_.compare(part.begin, part.end, kFreed, stream, difference);
        }
        if (status == DriverStatus::ok && difference.bytes != 0) tell(difference);
      }
      poisoned_.remove(range.begin, range.end);
    }
    for (const RangeSet::Range& range : ranges) {
      if (status == DriverStatus::ok) {
        status = contents_.fill(range.begin, range.end, kNew, stream);
      }
    }
    return status;
  }

  /// The memory is given out, but must not be touched now.
  void pass(Ranges ranges) {
    for (const RangeSet::Range& range : ranges) poisoned_.remove(range.begin, range.end);
  }

  /// The block is freed, and the stream's next work comes after all that used it.
  DriverStatus give(const CheckedBlock& block, Ranges ranges, StreamHandle stream);

  /// The block that was freed last of those that lay at that address of the home, and where in it
  /// that is; nullptr where none is remembered.
  [[nodiscard]] const CheckedBlock* freed_at(DeviceAddress home_address,
                                             std::uint64_t& offset) const;

  /// Those remembered, the newest last.
  [[nodiscard]] std::vector<CheckedBlock> freed() const;

  /// Memory went back to the driver: other memory may come to where it was.
  void forget() { poisoned_.clear(); }

 private:
  // How many freed blocks are remembered.
  static constexpr std::size_t kRemembered = 4096;
  struct Freed {
    CheckedBlock block;
    std::vector<RangeSet::Range> ranges;
  };

  Contents& contents_;
  RangeSet poisoned_;
  std::deque<Freed> freed_;
};

}  // namespace gapless
