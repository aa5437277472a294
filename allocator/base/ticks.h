// Ticks: a clock that is read in a few nanoseconds, for what happens millions of times a second.
//
//   ticks        1000      4000                 what an event keeps
//   wall clock   12:00.000 12:00.003            read now and then, beside the ticks
//                                               -> 2500 ticks are 12:00.0015
#pragma once

#include <chrono>
#include <cstdint>

namespace gapless {

/// Counts up at a rate that does not change while the process runs.
inline std::uint64_t ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  std::uint64_t value = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

/// Turns ticks into microseconds since 1970, between and beyond two moments at which both were
/// read.
class TickClock {
 public:
  TickClock() { mark(); }

  /// Reads both again: the longer ago the first was, the better the rate is known.
  void mark() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const std::uint64_t at = ticks();
    const auto now_us = std::chrono::duration<double, std::micro>(now).count();
    if (first_us_ == 0) {
      first_us_ = now_us;
      first_ticks_ = at;
    } else if (at > first_ticks_ && now_us > first_us_) {
      us_per_tick_ = (now_us - first_us_) / static_cast<double>(at - first_ticks_);
    }
  }
  [[nodiscard]] std::uint64_t us_at(std::uint64_t at) const {
    const auto since = static_cast<double>(static_cast<std::int64_t>(at - first_ticks_));
    return static_cast<std::uint64_t>(first_us_ + since * us_per_tick_);
  }

 private:
  double first_us_ = 0;
  std::uint64_t first_ticks_ = 0;
  double us_per_tick_ = 0;
};

}  // namespace gapless
