#include "tools/simulated_run.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "simgpu/front_libraries.h"
#include "simgpu/process/gpu_profile.h"
#include "simgpu/process/ranks.h"
#include "tools/inputs.h"
#include "tools/text_width.h"
#include "tools/torch_settings.h"

namespace gapless::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// 1, 2, 3, 5: "1-3", "5"
std::vector<std::string> runs_of(const std::vector<int>& numbers) {
  std::vector<std::string> runs;
  for (std::size_t first = 0; first < numbers.size();) {
    std::size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    runs.push_back(first == last ? fmt::format("{}", numbers[first])
                                 : fmt::format("{}-{}", numbers[first], numbers[last]));
    first = last + 1;
  }
  return runs;
}

}  // namespace

std::vector<std::string> simulated_allocators() {
  return {"gapless", "native", "expandable", "async"};
}

std::vector<std::string> allocator_words() {
  std::vector<std::string> words = simulated_allocators();
  words.emplace_back("all");
  return words;
}

void spell_out(std::vector<std::string>& allocators) {
  if (std::find(allocators.begin(), allocators.end(), "all") != allocators.end()) {
    allocators = {"gapless", "native", "expandable"};
  }
}

void check(const SimulatedGpus& gpus, const std::vector<std::string>& allocators) {
  std::optional<std::uint64_t> context;
  if (!gpus.context.empty()) context = bytes_of(gpus.context, "--context");
  try {
    (void)simgpu::parse_gpus(gpus.gpus, context);
  } catch (const std::invalid_argument& error) {
    throw InputError(std::string("--gpu: ") + error.what());
  }
  try {
    const simgpu::Ranks ranks(gpus.ranks);
  } catch (const std::invalid_argument& error) {
    throw InputError(std::string("--ranks: ") + error.what());
  }
  if (std::find(allocators.begin(), allocators.end(), "gapless") != allocators.end()) {
    check_conf(gpus.conf);
  }
}

Variables variables_of(const SimulatedGpus& gpus, const std::string& allocator,
                       const fs::path& reports) {
  const fs::path front = simgpu::front_folder();
  Variables variables = {{"SIMGPU_GPUS", gpus.gpus},
                         {"SIMGPU_REPORT_DIR", reports},
                         {"SIMGPU_SHARED", reports / "usage"}};
  const auto set = [&](const char* name, const std::string& value) {
    if (!value.empty()) variables.emplace_back(name, value);
  };
  set("SIMGPU_CONTEXT", gpus.context);
  set("SIMGPU_STRICT", gpus.strict ? "1" : "");
  set("SIMGPU_UNKNOWN", gpus.unknown);
  set("SIMGPU_CHOICES", gpus.choices);
  set("SIMGPU_SKEW", fmt::format("{}", gpus.skew));
  set("SIMGPU_RANKS", gpus.ranks);
  set("SIMGPU_STEPS", gpus.steps == 0 ? "" : std::to_string(gpus.steps));
  set("SIMGPU_WORST_CASE", gpus.worst_case ? "1" : "");
  if (const std::string before = torch_settings_set(),
      settings = torch_settings_for(allocator, before);
      settings != before) {
    set("PYTORCH_CUDA_ALLOC_CONF", settings);
  }
  if (allocator == "native" || allocator == "expandable") {
    set("SIMGPU_EXPANDABLE_SEGMENTS", allocator == "expandable" ? "True" : "False");
  }
  // Where nvidia-smi is of the simulated GPUs.
  const char* const path = std::getenv("PATH");
  set("PATH", (front / "bin").string() + (path == nullptr ? "" : std::string(":") + path));
  // torch.compile looks for libcuda there.
  if (std::getenv("TRITON_LIBCUDA_PATH") == nullptr) set("TRITON_LIBCUDA_PATH", front);
  // Kernels that were tried out on a simulated GPU say nothing of which is quickest on a real one,
  // so they are not kept where programs on that look. PyTorch has a folder there, too.
  std::error_code no_folder;
  const fs::path temporary = fs::temp_directory_path(no_folder);
  if (!no_folder && std::getenv("TORCHINDUCTOR_CACHE_DIR") == nullptr &&
      std::getenv("TRITON_CACHE_DIR") == nullptr) {
    const fs::path kernels = temporary / fmt::format("torchinductor_simulated_{}", ::getuid());
    set("TORCHINDUCTOR_CACHE_DIR", kernels);
    set("TRITON_CACHE_DIR", kernels / "triton");
  }
  // What the user preloads stands in front of CUDA's libraries here as it does in front of
  // NVIDIA's.
  const char* const before = std::getenv("LD_PRELOAD");
  std::string preload =
      in_front(before == nullptr ? "" : before, simgpu::front_libraries(front).c_str());
  if (allocator == "gapless") {
    preload = in_front(preload_library(), preload.c_str());
    set("GAPLESS_CONF", gpus.conf);
  }
  set("LD_PRELOAD", preload);
  return variables;
}

std::string no_gpu_used(const std::string& program, const Ended& ended, const std::string& why) {
  const int status = ended.status();
  std::string text =
      status == 0 ? "the program used no GPU"
                  : fmt::format("{} ended with status {} before it used a GPU", program, status);
  if (ended.by_signal && ended.code == SIGKILL && ended.memory_ran_out) {
    text += ", when this machine's own memory had run out";
  }
  if (!why.empty()) {
    text += "; " + why;
  } else if (status == 0) {
    text +=
        " that can be simulated (those of programs with the CUDA runtime linked into them cannot)";
  }
  if (const char* const seen = std::getenv("CUDA_VISIBLE_DEVICES"); seen != nullptr) {
    text += fmt::format("; CUDA_VISIBLE_DEVICES={} is set here, and holds for simulated GPUs, too",
                        seen);
  }
  return text;
}

std::string headline(const std::string& command, const SimulatedGpus& gpus) {
  return message(fmt::format(
      "gapless {}: on simulated GPUs ({}). Sizes are real; numbers are where they follow from what "
      "the host gave.",
      command, gpus.gpus));
}

std::string note_of_ranks(const SimulatedGpus& gpus, const std::vector<int>& absent) {
  if (gpus.ranks.empty()) return {};
  if (absent.empty()) {
    return fmt::format(
        "--ranks {}: nobody was left out: only of programs whose launcher numbers them (torchrun, "
        "accelerate launch, deepspeed) is it known who is which rank",
        gpus.ranks);
  }
  return fmt::format(
      "of the ranks, only those of --ranks {} ran. {} did not: {} taken to do the same, in their "
      "collectives too, and to need as much",
      gpus.ranks, fmt::join(runs_of(absent), ", "), absent.size() == 1 ? "it is" : "they are");
}

std::string used_in_place(const json& rows) {
  bool gapless = rows.empty();
  for (const json& row : rows) {
    std::string used = row["allocator"];
    if (used != "gapless" && used != "cudaMalloc") return used;
    gapless = gapless || used == "gapless";
  }
  return gapless ? "" : "cudaMalloc";
}

void add_gpu_options(CLI::App& command, SimulatedGpus& gpus) {
  command
      .add_option("-g,--gpu", gpus.gpus,
                  fmt::format("The GPUs, separated by commas: a size, a name, or NAME:SIZE; "
                              "3x16GiB are three. A size alone is taken for an A100 of that size: "
                              "older cards may take more. Known are {}",
                              fmt::join(simgpu::gpu_profile_names(), ", ")))
      ->capture_default_str();
  command.add_option("-c,--conf", gpus.conf, "gapless's options, as GAPLESS_CONF");
  command.add_option("--context", gpus.context,
                     "What a CUDA context takes, in place of the GPU's usual figure");
  command.add_option("--ranks", gpus.ranks,
                     "Of a launcher's ranks that all do the same, run only these (0; 0,7; 0-3): "
                     "the others are taken to do what they do, which is said");
  command.add_flag("--strict", gpus.strict,
                   "Stop at the first CUDA function that is not simulated, naming it");
  command
      .add_option("--unknown", gpus.unknown,
                  "What stands in for numbers that nobody knows, where the program reads them or "
                  "chooses by them: zeros (choices go in turn), noise (they are random, with a "
                  "fixed seed), or most (as zeros, and masks, boxes and the like choose as many as "
                  "there can be)")
      ->check(CLI::IsMember({"zeros", "noise", "most"}))
      ->capture_default_str();
  command
      .add_option("--skew", gpus.skew,
                  "By how much the busiest of a router's experts has more than the mean: 0.5 is "
                  "half as much again (where the choice is not known)")
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  command
      .add_option(
          "--steps", gpus.steps,
          "Stop the program after so many optimizer steps, as it is about to make the next: "
          "what it says is of those, and what would come later is not seen")
      ->check(whole_number());
  command.add_flag("--worst-case", gpus.worst_case,
                   "Feed the longest items that the data has, every third batch, where a "
                   "DataLoader has them at hand; it is said where not");
  command.add_flag(
      "--estimates", gpus.estimates,
      "Take sizes that follow from numbers nobody knows (a router's loads, the boxes "
      "that a detector keeps) as they come, and say \"yes, by estimates\", where it is "
      "\"not known\" otherwise");
}

}  // namespace gapless::tools
