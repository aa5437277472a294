#include "tools/older_gpu.h"

#include <algorithm>

#include <fmt/format.h>

#include "simgpu/process/gpu_profile.h"
#include "tools/estimates_from.h"
#include "tools/json_values.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

using nlohmann::json;

constexpr const char* kOlder = "T4";  // compute capability 7.5

bool needs_newer(const json& row) {
  return member(row, "needs_compute_capability").is_string() && member(row, "is_named") == false;
}

std::string who_ran(const json& row) {
  return fmt::format(
      "only its size was given, so the GPU was taken for one of compute capability {}, and "
      "attention ran in kernels that older ones lack",
      row["compute_capability"].get<std::string>());
}

// The same process on an older one.
bool takes_no_more(const json& before, const json& other) {
  const auto bytes_before = static_cast<double>(number(before["peak_allocated_bytes"]));
  const auto bytes_now = static_cast<double>(number(other["peak_allocated_bytes"]));
  return other["fits"] == true &&
         (bytes_now < bytes_before || took_as_much(bytes_before, bytes_now));
}

// On the older one. `who` ran there, where that is not plain.
std::string what_it_did(const json& other, bool no_more, bool is_first, const std::string& who) {
  const std::string where =
      fmt::format("on one of {} ({}) ", other["compute_capability"].get<std::string>(), kOlder);
  if (no_more) return where + "it takes no more";
  if (other["fits"] == true) {
    return where + fmt::format("{} are allocated{}{}", size_text(other["peak_allocated_bytes"]),
                               is_first ? " and fit" : "", who);
  }
  return where + fmt::format("it {}{}: {}",
                             other["fits"] == false ? "does not fit" : "is not known to fit", who,
                             other["reason"].get<std::string>());
}

}  // namespace

std::string capability_text(std::int32_t capability) {
  return fmt::format("{}.{}", capability / 10, capability % 10);
}

std::string older_gpu_note(const json& row) {
  if (!needs_newer(row) || row["fits"] == false) return {};
  if (const json tried = member(row, "on_older_gpu"); tried.is_object()) return tried["note"];
  return who_ran(row) +
         fmt::format(": an older one (T4, V100) may take more; name it (--gpu {})", kOlder);
}

const FitsRun* wants_older_gpu(std::span<const FitsRun> runs) {
  const auto found = std::find_if(runs.begin(), runs.end(), [](const FitsRun& run) {
    return run.fits() == true && run.end.by == WatchedEnd::By::itself &&
           std::any_of(run.rows.begin(), run.rows.end(), needs_newer);
  });
  return found == runs.end() ? nullptr : &*found;
}

SimulatedGpus older(SimulatedGpus gpus) {
  gpus.gpus = simgpu::name_sizes(gpus.gpus, kOlder);
  return gpus;
}

bool answers_for_all(const FitsRun& first, const FitsRun& again) {
  if (again.fits() != true) return true;
  for (std::size_t i = 0; i < first.rows.size(); ++i) {
    const json& row = first.rows[i];
    const json* const other = counterpart(again.rows, i, row);
    if (row["pid"].is_number() && other != nullptr && !takes_no_more(row, *other)) return false;
  }
  return true;
}

void judge_by_older_gpu(std::span<FitsRun> runs, const FitsRun& first, const FitsRun& again,
                        const std::string& tried) {
  if (again.end.by == WatchedEnd::By::user) return;
  const json first_rows = first.rows;  // which are judged anew, too
  const std::string with = " with " + (tried.empty() ? again.allocator : tried);
  for (FitsRun& run : runs) {
    for (std::size_t i = 0; i < run.rows.size(); ++i) {
      json& row = run.rows[i];
      if (!row["pid"].is_number() || row["fits"] != true || !needs_newer(row) ||
          row.contains("on_older_gpu")) {
        continue;
      }
      const json* const before = counterpart(first_rows, i, row);
      const json* const other = counterpart(again.rows, i, row);
      if (before == nullptr || other == nullptr || !(*other)["pid"].is_number()) continue;
      const bool is_first = &run == &first;
      const bool fits = (*other)["fits"] == true;
      const bool no_more = takes_no_more(*before, *other);
      const std::string found =
          who_ran(row) + "; " +
          what_it_did(*other, no_more, is_first, is_first && tried.empty() ? "" : with);
      const std::string untried = older_gpu_note(row);
      row["on_older_gpu"] = {{"compute_capability", (*other)["compute_capability"]},
                             {"allocator", again.allocator},
                             {"fits", (*other)["fits"]},
                             {"peak_allocated_bytes", member(*other, "peak_allocated_bytes")},
                             {"note", found}};
      // Rows of dryrun have none: they are told by older_gpu_note.
      if (row.contains("notes")) {
        for (json& note : row["notes"]) {
          if (note == untried) note = found;
        }
      }
      if (!no_more && !(fits && is_first)) {
        row["verdict"] = row["verdict"].get<std::string>().append(kOnNewerGpus);
      }
    }
  }
}

}  // namespace gapless::tools
