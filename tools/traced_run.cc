#include "tools/traced_run.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "allocator/base/bytes.h"
#include "simgpu/process/process_record.h"
#include "tools/say.h"
#include "tools/table.h"
#include "tools/temporary_folder.h"
#include "tools/watched_program.h"

namespace gapless::tools {
namespace {

namespace fs = std::filesystem;

// How far the run has come, on a terminal.
class RunProgress {
 public:
  RunProgress(std::string what, fs::path reports)
      : what_(std::move(what)), reports_(std::move(reports)), shown_(isatty(STDERR_FILENO) != 0) {}
  ~RunProgress() { clear(); }
  RunProgress(const RunProgress&) = delete;
  RunProgress& operator=(const RunProgress&) = delete;

  void look() {
    if (!shown_) return;
    std::uint64_t steps = 0;
    std::uint64_t peak = 0;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(reports_, ignored)) {
      if (entry.path().extension() != ".gpu") continue;
      const auto record = simgpu::read_record(entry.path().string());
      if (!record) continue;
      steps = std::max(steps, record->steps);
      for (const auto& device : record->devices) peak = std::max(peak, device.peak_used_bytes);
    }
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - begin_);
    say(stderr, "\r\x1b[K{}: {} s, {} steps, {} in use at most", what_, seconds.count(),
        with_commas(steps), format_bytes(peak));
    std::fflush(stderr);
    drawn_ = true;
  }
  void clear() {
    if (drawn_) fmt::print(stderr, "\r\x1b[K");
    drawn_ = false;
  }

 private:
  std::string what_;
  fs::path reports_;
  bool shown_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

FitsRun run_traced(const TracedRun& run) {
  const TemporaryFolder folder;
  const fs::path reports = folder.path() / "reports";
  fs::create_directory(reports);
  Variables variables = variables_of(run.gpus, run.allocator, reports);
  variables.emplace_back("SIMGPU_MEMORY_TRACE", "1");
  variables.insert(variables.end(), run.variables.begin(), run.variables.end());
  Watching watching;
  if (!run.show_output) watching.output = folder.path() / "output";
  if (run.limit_seconds > 0) {
    watching.limit = std::chrono::milliseconds(static_cast<std::int64_t>(run.limit_seconds * 1000));
  }
  const auto begin = std::chrono::steady_clock::now();
  WatchedEnd end;
  {
    RunProgress progress(run.name, reports);
    if (!run.show_output) watching.look = [&progress] { progress.look(); };
    end = run_watched(run.command, variables, watching);
  }
  const Judging judging = {run.gpus.worst_case, run.blocks, run.gpus.estimates};
  FitsRun judged =
      judge_run(run.allocator, run.command.front(), reports, watching.output, end, judging);
  judged.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (nlohmann::json& row : judged.rows) row["seconds"] = judged.seconds;
  return judged;
}

}  // namespace gapless::tools
