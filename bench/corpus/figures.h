// Figures: what is asked of an allocator over one program.
//
//   over    reserved over allocated, at their peaks, after 5 passes
//   calls   driver calls and stalls in the 5th and in the 10th pass
//   time    of driver calls in the first pass, by two cost profiles
//   tight   whether 4 passes complete with 2 % more memory than is live, and with how many stalls
//   least   the least memory with which they complete, over what is live; the slow one
//
// Passes are those of replay/replay.h, the least memory is that of replay/fit.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/trace/trace.h"

namespace gapless::bench {

enum class Figure : std::uint8_t {
  over,
  calls_5,
  stalls_5,
  calls_10,
  stalls_10,
  a100_ms,
  desktop_ms,
  tight_fails,
  tight_stalls,
  least,
};
inline constexpr std::size_t kFigures = 10;

struct FigureFacts {
  std::string_view key;    // in JSON
  std::string_view title;  // for people
  std::string_view set;    // which of the choices of --figures it belongs to
  int digits = 0;          // after the point
};
const FigureFacts& facts_of(Figure figure);

/// What of it is measured.
struct FigureChoice {
  bool over = true;
  bool calls = true;
  bool time = true;
  bool tight = true;
  bool least = true;

  [[nodiscard]] bool has(Figure figure) const;
};
/// Reads "over,calls", "quick" (all but the least memory) or "all". Throws InputError that names
/// what it does not know, with what there is.
FigureChoice read_figures(const std::string& list);

/// One value for each figure; nothing where it was not measured, or where there is none: of what
/// did not complete.
struct FigureValues {
  std::optional<double> values[kFigures];

  std::optional<double>& operator[](Figure figure) {
    return values[static_cast<std::size_t>(figure)];
  }
  const std::optional<double>& operator[](Figure figure) const {
    return values[static_cast<std::size_t>(figure)];
  }
};

/// Over one program; `settings` are gapless's own.
FigureValues measure(const Trace& trace, const std::string& allocator, const std::string& settings,
                     const FigureChoice& choice);

}  // namespace gapless::bench
