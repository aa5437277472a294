// HeapPeak: the most that operator new had given out at one moment since this was made. For
// programs that link heap_peak.cc, which puts its own operator new in the place of all others.
#pragma once

#include <cstdint>

namespace gapless::testing {

class HeapPeak {
 public:
  HeapPeak();
  /// Above what was in use at the begin, with malloc's own rounding.
  [[nodiscard]] std::uint64_t bytes() const;

 private:
  std::uint64_t before_;
};

}  // namespace gapless::testing
