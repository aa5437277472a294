// ProbeResult: what one probe said, by the rows of its `gapless dryrun`.
//
//   every process a plain "yes"                    fits
//   one "no"; or "yes", but after out of memory    fails
//   "not known", as Python's garbage collector     in doubt
//     decides
//   anything else                                  not known: nothing is concluded from it
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "tools/fits_report.h"
#include "tools/search/boundary.h"
#include "tools/search/memory_estimate.h"
#include "tools/search/probes.h"

namespace gapless::tools {

struct ProbeResult {
  Probed probed = Probed::not_known;
  std::string verdict;  // "yes", "yes, after 2 out of memory", "no", "not known"
  std::string reason;   // a sentence, where it is not plainly "yes"
  nlohmann::json rows = nlohmann::json::array();
  int status = 0;
  double seconds = 0;
  std::uint64_t host_bytes = 0;
  bool kept = false;  // from an earlier search
  bool timed_out = false;
  std::string output;  // the end of what the program said, where it is not known why it failed

  /// The row of the GPU that was fullest; null where no GPU was used.
  [[nodiscard]] nlohmann::json fullest() const;
  /// Whether it ran as a rank of several, which mostly meet at a fixed port.
  [[nodiscard]] bool is_distributed() const;
  /// Whether it would fit, but for sizes that followed from numbers that nobody knows.
  [[nodiscard]] bool fits_but_for_sizes() const;
  /// The most that any process had allocated.
  [[nodiscard]] double most_allocated() const;
  void tell(MemoryEstimate& estimate, double setting) const;
  /// As second_guess.h judges them, which may leave nothing known.
  [[nodiscard]] FitsRun as_run() const;
  void judge_anew(const FitsRun& run);
};

/// `rows`: nothing where the dry run wrote none. `output`: all that was said.
ProbeResult judged(const std::optional<nlohmann::json>& rows, const std::string& allocator,
                   const Probes::Over& over, const std::string& output);

/// One that would fit but for sizes, with those taken as they came.
ProbeResult with_sizes_accepted(ProbeResult result, const std::string& allocator);

}  // namespace gapless::tools
