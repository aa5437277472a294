// A program on simulated GPUs, as `dryrun`, `fits` and `search` have it run: which GPUs, with which
// allocator, and where its processes leave word.
//
//   LD_PRELOAD               what puts gapless in its place | the libraries in front of CUDA's
//   SIMGPU_*                 the GPUs, the folder for reports
//   PYTORCH_CUDA_ALLOC_CONF  which of PyTorch's allocators
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tools/launch.h"

namespace gapless::tools {

struct SimulatedGpus {
  std::string gpus = "A100";
  std::string context;            // what one takes; empty: the profiles' figures
  std::string conf;               // gapless's options; empty: GAPLESS_CONF's
  bool strict = false;            // stop at the first function that is not simulated
  std::string unknown = "zeros";  // what is read where nobody knows it; or "noise", "most"
  std::string choices;            // of a run before, which this one makes the other way (JSON)
  bool worst_case = false;        // the longest items of the data are fed
  std::uint64_t steps = 0;        // it is stopped after so many optimizer steps; 0: never
  bool estimates = false;         // sizes that follow from such numbers are taken as they come
  double skew = 0;    // by how much of the mean an expert has more than that, the busiest one
  std::string ranks;  // of equal ones, those to run (simgpu/process/ranks.h); empty: all
};

/// "gapless", "native", "expandable", "async"
std::vector<std::string> simulated_allocators();
/// What an option takes that names several: those, or "all".
std::vector<std::string> allocator_words();
/// "all" becomes what it stands for: gapless, native, expandable.
void spell_out(std::vector<std::string>& allocators);

/// Throws InputError, naming the option, for GPUs that there cannot be, and for wrong options of
/// gapless where it is among the allocators.
void check(const SimulatedGpus& gpus, const std::vector<std::string>& allocators);

/// What a program is started with, so that it reports to this folder.
Variables variables_of(const SimulatedGpus& gpus, const std::string& allocator,
                       const std::filesystem::path& reports);

/// Why there is nothing to show of a program that used no GPU. `why`: what a process said of it
/// (simgpu/process/no_gpu.h), where one did.
std::string no_gpu_used(const std::string& program, const Ended& ended, const std::string& why);

/// What a command begins with, in lines: "gapless fits: on simulated GPUs (16GiB). Sizes are real;
/// ..."
std::string headline(const std::string& command, const SimulatedGpus& gpus);

/// What is to be said of ranks that did not run; empty where all were to.
std::string note_of_ranks(const SimulatedGpus& gpus, const std::vector<int>& absent);

/// What was used where gapless was asked for: another allocator of PyTorch's, or no process's was
/// gapless. Empty where all is well.
std::string used_in_place(const nlohmann::json& rows);

/// Adds --gpu, --conf, --context, --ranks, --strict, --unknown, --skew, --estimates,
/// --worst-case and --steps.
void add_gpu_options(CLI::App& command, SimulatedGpus& gpus);

}  // namespace gapless::tools
