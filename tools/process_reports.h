// What the processes of a dry run left behind, each judged.
//
//   4711.0.gpu          simgpu/process/process_record.h, of every process that used a GPU
//   4711.0.torch.json   simgpu/python/watch_torch.py, of those with Python and torch, where they
//                       came to it
//   no_gpu              why a process could use none (simgpu/process/no_gpu.h)
//   too_few_gpus.1      of one that asked for GPU 1, which is not there
//                       (simgpu/process/too_few_gpus.h)
//   absent.1            of a rank that was not to run (simgpu/process/ranks.h)
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "simgpu/process/process_record.h"
#include "simgpu/verdict.h"
#include "tools/launch.h"

namespace gapless::tools {

struct ProcessReport {
  int pid = 0;
  int image = 0;  // 1 and more: of the programs that took the place of the first
  simgpu::ProcessRecord record;
  nlohmann::json torch = nlohmann::json::object();
  simgpu::ProcessFacts facts;
  simgpu::Verdict verdict;

  /// -1 where it has none.
  [[nodiscard]] int rank() const;
};

/// Nothing where what was allocated there did not grow from step to step. What is left for it ends
/// at what the program allows itself of the GPU.
std::optional<simgpu::Growth> growth_of(const ProcessReport& report, int device);

/// One for each process that used a GPU, by rank and process number. `started` is the one that the
/// command waited for, of whose end more is known than it could write.
std::vector<ProcessReport> read_reports(const std::filesystem::path& folder, const Ended& started);

/// Ranks that were not to run (simgpu/process/ranks.h), in order.
std::vector<int> absent_ranks(const std::filesystem::path& folder);

/// Why a process could use no GPU, where one said so; else empty.
std::string why_no_gpu(const std::filesystem::path& folder);

}  // namespace gapless::tools
