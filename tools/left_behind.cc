#include "tools/left_behind.h"

#include <algorithm>

#include <fmt/format.h>

#include "tools/estimates_from.h"
#include "tools/json_values.h"
#include "tools/same_program.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

using nlohmann::json;

std::uint64_t most_of(const FitsRun& run, const char* name) {
  std::uint64_t most = 0;
  for (const json& row : run.rows) most = std::max(most, number(member(row, name)));
  return most;
}

}  // namespace

void StepsBefore::judge(FitsRun& run) {
  const std::uint64_t steps = most_of(run, "steps");
  if (steps == 0 && most_ != 0) {
    take_for_not_known(
        run,
        fmt::format("no optimizer took a step, and in an earlier run one took {}: it seems to "
                    "have found what that run left, as a checkpoint. Have each run write to a "
                    "folder of its own: {{folder}} in the command, as in --output-dir {{folder}}",
                    with_commas(most_)));
  }
  most_ = std::max(most_, steps);
}

bool took_no_step_beside(const json& other, const json& row) {
  return number(member(row, "steps")) == 0 && number(member(other, "steps")) != 0;
}

bool takes_less_than(const FitsRun& first, const FitsRun& again) {
  const auto before = static_cast<double>(most_of(first, "peak_allocated_bytes"));
  const auto now = static_cast<double>(most_of(again, "peak_allocated_bytes"));
  return now < before && !took_as_much(before, now);
}

}  // namespace gapless::tools
