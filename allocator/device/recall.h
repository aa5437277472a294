// Recall: where a program that repeats itself had its blocks the last time it came by here.
//
//   requests   ... A B C D A B C E | A B C D A B C ?          (stream and size each)
//   lag                 |<----- 8 ----->|                      follows itself eight requests back
//   ? is E: the place that E had then
//
// With several streams the memory that is free for a request changes its order with every step:
// what was freed longest ago is somewhere else each time, and each time another window would have
// to be made. A program that is given the places it had before meets the same choices with every
// step, and the same ages: what was a good choice once is one again.
//
// The history is followed as long as the requests agree; where they part, the last few requests say
// where to go on. Only a program that has repeated itself a few times is settled: its choices are
// then those of its stride, not of its beginning.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "allocator/driver/driver.h"
#include "allocator/heap/windows.h"

namespace gapless {

/// A place in a window, or in the home (address 0: units from the home's begin).
struct Place {
  DeviceAddress window_address = 0;
  WindowSpot spot;
};

class Recall {
 public:
  /// The next request. Where it went the last time; nothing where that is not known, or the program
  /// is not settled.
  const Place* follow(Owner owner, Unit size);
  /// The request that follow() was told of went there.
  void note(const Place& place);

 private:
  // A power of two. A program with more requests than this in a step does not repeat, to us.
  static constexpr std::size_t kHistory = 1 << 15;
  // So many requests in a row tell one place in a program from others.
  static constexpr std::size_t kContext = 8;

  struct Request {
    std::uint64_t key = 0;  // owner and size
    Place place;
  };
  [[nodiscard]] Request& at(std::uint64_t number) { return history_[number % kHistory]; }
  [[nodiscard]] bool is_kept(std::uint64_t number) const {
    return number != 0 && number < count_ && number + kHistory > count_;
  }
  /// What the last requests and this one are.
  [[nodiscard]] std::uint64_t context(std::uint64_t key);

  std::vector<Request> history_;
  std::uint64_t count_ = 1;     // requests so far, the next one's number; 0 is none
  std::uint64_t followed_ = 0;  // the request that the last one agreed with
  std::uint64_t agreed_ = 0;    // requests in a row that agreed
  std::uint64_t key_ = 0;
  std::uint64_t context_ = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> by_context_;  // the last request with it
};

}  // namespace gapless
