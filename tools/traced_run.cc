#include "tools/traced_run.h"

#include <chrono>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "tools/own_folder.h"
#include "tools/run_progress.h"
#include "tools/temporary_folder.h"
#include "tools/watched_program.h"

namespace gapless::tools {

namespace fs = std::filesystem;

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
  LeftRunning left;
  WatchedEnd end;
  {
    RunProgress progress(run.name, reports, !run.show_output, run.gpus.unknown == "zeros");
    watching.look = [&progress] { progress.look(); };
    watching.waits = [&progress](const std::string& names) { progress.wait_for(names); };
    end = run_watched(with_own_folder(run.command, folder.path()), variables, watching, left);
  }
  const Judging judging = {run.gpus.worst_case, run.blocks, run.gpus.estimates};
  FitsRun judged =
      judge_run(run.allocator, run.command.front(), reports, watching.output, end, judging);
  tell_of_left(judged.rows, left);
  judged.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (nlohmann::json& row : judged.rows) row["seconds"] = judged.seconds;
  return judged;
}

}  // namespace gapless::tools
