// Mistake: a use of memory that was wrong, as a check found it.
//
//   block    [ 1,000 bytes that were asked for ][ band ]
//                                                 ^^^^ changed: behind, first offset 1,004
//
// "gapless: 4 bytes behind a block of 1000 bytes were overwritten (...)"
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "allocator/driver/driver.h"

namespace gapless {

/// A block as checks know it.
struct CheckedBlock {
  DeviceAddress address = 0;  // as the program knows it
  std::uint64_t bytes = 0;    // from there on, what is behind the request included
  std::uint64_t requested_bytes = 0;
  StreamHandle stream = 0;  // allocated on
  std::string call_site;    // "train.py:42 (step)"; empty: not known
  std::chrono::steady_clock::time_point since{};
  /// When it was freed; of a live block nothing.
  std::chrono::steady_clock::time_point freed{};
  bool fenced = false;

  [[nodiscard]] DeviceAddress end() const { return address + bytes; }
};

struct Mistake {
  enum class Kind : std::uint8_t {
    behind,      // written behind what was asked for
    before,      // written before the block
    after_free,  // written to the block when it was freed already
  };
  enum class Found : std::uint8_t { when_freed, when_given_out, on_demand };

  Kind kind = Kind::behind;
  Found found = Found::when_freed;
  DeviceIndex device = 0;
  CheckedBlock block;
  /// Of the first wrong byte from the block's begin; negative before it.
  std::int64_t first_offset = 0;
  std::uint64_t wrong_bytes = 0;
  /// How long the block had been live, or free, by then.
  std::chrono::nanoseconds age{0};
  std::chrono::nanoseconds free_for{0};
};

/// "behind", "before", "after_free".
const char* name_of(Mistake::Kind kind);
/// A sentence, without its full stop.
std::string to_text(const Mistake& mistake);

}  // namespace gapless
