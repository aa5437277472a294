// Whether a program under watch may be waiting for ever. Numbers that nobody knows never change, so
// a loop that ends by one (until it has converged, until a draw is accepted) may not end:
//
//   after  steps  in use    read       after  steps  in use    read
//   10 s       0  0.5 GiB   4,000      10 s       3  0.5 GiB   4,000
//   45 s       0  0.5 GiB  21,000      45 s       9  0.5 GiB  21,000
//   -> told, once                      -> it goes on: nothing is told
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace gapless::tools {

/// What a program has come to, of all its processes together.
struct CameTo {
  std::uint64_t steps = 0;
  std::uint64_t peak_bytes = 0;
  std::uint64_t unknown_read = 0;
};

class Standstill {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Standstill(Clock::time_point now) : since_(now) {}

  /// How many such numbers were read since anything else was seen, where that is long ago and they
  /// are many; told once.
  std::optional<std::uint64_t> look(const CameTo& now_at, Clock::time_point now);

 private:
  // Not tuned to any program: a warning too many costs a line. What evaluates reads one for each
  // batch, a loop that waits some thousand in that time.
  static constexpr std::chrono::seconds kLong{30};
  static constexpr std::uint64_t kMany = 2000;

  CameTo at_;
  Clock::time_point since_;
  bool told_ = false;
};

}  // namespace gapless::tools
