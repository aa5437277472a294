// A recorded run as `replay` and `fit` see it: with what it asked for and did not get.
//
//   it ended out of memory        replayed with the last request served, for it needs that at
//   least;
//                                 whether it fits is not known, for nobody knows what came after
//   it went on without            replayed as it was; what it did not get is told
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "allocator/trace/trace.h"
#include "allocator/trace/unserved_requests.h"

namespace gapless::tools {

struct RecordedRun {
  explicit RecordedRun(Trace recorded);

  Trace trace;
  UnservedRequests failed;
  /// The request that it ended with; nothing where it did not end out of memory.
  std::optional<UnservedRequest> end;
  /// That one is more than any GPU has, and was not served in `trace`.
  bool beyond_any_gpu = false;

  /// "qwen-lora", "qwen-lora gpu1"
  [[nodiscard]] std::string name() const;
  /// For people: what it did not get, and what that means. Empty where it got everything.
  [[nodiscard]] std::string note() const;
  /// For every row of JSON: "ended_out_of_memory", "at_least_bytes", "failed_requests".
  void tell(nlohmann::json& row) const;
};

std::vector<RecordedRun> recorded_runs(std::vector<Trace> traces);

}  // namespace gapless::tools
