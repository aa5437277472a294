// gapless dryrun: does a program fit on GPUs that are not there?
//
//   gapless dryrun --gpu 16GiB -- python train.py
//     sets LD_PRELOAD (simgpu/front), SIMGPU_*, PyTorch's allocator settings; runs the program
//     <- reports of its processes (process_reports.h), judged (simgpu/verdict.h)
//     -> a row for each process and GPU (dryrun_rows.h)
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "allocator/base/json_text.h"
#include "simgpu/front_libraries.h"
#include "simgpu/process/gpu_profile.h"
#include "tools/commands.h"
#include "tools/dryrun_rows.h"
#include "tools/inputs.h"
#include "tools/launch.h"
#include "tools/process_reports.h"
#include "tools/say.h"
#include "tools/table.h"
#include "tools/temporary_folder.h"

namespace gapless::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct DryrunArguments {
  std::string gpus = "A100";
  std::vector<std::string> allocators = {"native"};
  std::string conf;
  std::string record;
  bool json = false;
  std::string json_file;  // standard output where empty
  std::string context;
  bool strict = false;
  std::vector<std::string> command;
};

const std::map<std::string, std::string>& allocator_settings() {
  static const std::map<std::string, std::string> settings = {
      {"gapless", ""},
      {"native", ""},
      {"expandable", "expandable_segments:True"},
      {"async", "backend:cudaMallocAsync"}};
  return settings;
}

Variables variables_of(const DryrunArguments& arguments, const std::string& allocator,
                       const fs::path& reports) {
  const fs::path front = simgpu::front_folder();
  Variables variables = {{"SIMGPU_GPUS", arguments.gpus},
                         {"SIMGPU_REPORT_DIR", reports},
                         {"SIMGPU_SHARED", reports / "usage"}};
  const auto set = [&](const char* name, const std::string& value) {
    if (!value.empty()) variables.emplace_back(name, value);
  };
  set("SIMGPU_CONTEXT", arguments.context);
  set("SIMGPU_STRICT", arguments.strict ? "1" : "");
  set("SIMGPU_RECORD", arguments.record.empty() ? "" : fs::absolute(arguments.record).string());
  set("PYTORCH_CUDA_ALLOC_CONF", allocator_settings().at(allocator));
  // torch.compile looks for libcuda there.
  if (std::getenv("TRITON_LIBCUDA_PATH") == nullptr) set("TRITON_LIBCUDA_PATH", front);
  // What the user preloads stands in front of CUDA's libraries here as it does in front of
  // NVIDIA's.
  const char* const before = std::getenv("LD_PRELOAD");
  std::string preload =
      in_front(before == nullptr ? "" : before, simgpu::front_libraries(front).c_str());
  if (allocator == "gapless") {
    preload = in_front(preload_library(), preload.c_str());
    set("GAPLESS_CONF", arguments.conf);
  }
  set("LD_PRELOAD", preload);
  return variables;
}

void check(const DryrunArguments& arguments) {
  std::optional<std::uint64_t> context;
  if (!arguments.context.empty()) context = bytes_of(arguments.context, "--context");
  try {
    (void)simgpu::parse_gpus(arguments.gpus, context);
  } catch (const std::invalid_argument& error) {
    throw InputError(std::string("--gpu: ") + error.what());
  }
  const auto& asked = arguments.allocators;
  if (std::find(asked.begin(), asked.end(), "gapless") != asked.end()) check_conf(arguments.conf);
  check_writable(arguments.json_file, "--json");
  check_writable(arguments.record, "--record");
}

// Why there is nothing to show.
std::string no_gpu_used(const std::string& program, const Ended& ended, const std::string& torch) {
  std::string text =
      ended.status() == 0
          ? "the program used no GPU"
          : fmt::format("{} ended with status {} before it used a GPU", program, ended.status());
  if (!torch.empty()) {
    text += fmt::format("; its torch was built without CUDA ({}): install the CUDA build", torch);
  } else if (ended.status() == 0) {
    text +=
        " that can be simulated (those of programs with the CUDA runtime linked into them cannot)";
  }
  return text;
}

// With one allocator.
struct Outcome {
  Ended ended;
  json rows;
  std::string torch_without_cuda;
};

Outcome run_with(const std::string& allocator, const DryrunArguments& arguments) {
  const TemporaryFolder reports;
  Outcome outcome;
  outcome.ended =
      run_program(arguments.command, variables_of(arguments, allocator, reports.path()));
  outcome.rows =
      rows_of(read_reports(reports.path(), outcome.ended), allocator, outcome.ended.status());
  outcome.torch_without_cuda = torch_without_cuda(reports.path());
  return outcome;
}

// What was used where gapless was asked for: another allocator of PyTorch's, or no process's was
// gapless. Empty where all is well.
std::string used_in_place(const json& rows) {
  bool gapless = rows.empty();
  for (const json& row : rows) {
    std::string used = row["allocator"];
    if (used != "gapless" && used != "cudaMalloc") return used;
    gapless = gapless || used == "gapless";
  }
  return gapless ? "" : "cudaMalloc";
}

void write_json(const DryrunArguments& arguments, const json& rows) {
  const std::string text = json_text(rows, 1) + "\n";
  if (arguments.json_file.empty()) {
    fmt::print("{}", text);
  } else {
    write_file(arguments.json_file, text);
  }
}

int run(const DryrunArguments& arguments) {
  check(arguments);
  say(stderr, "gapless dryrun: on simulated GPUs ({}). Sizes are real; numbers computed are not.\n",
      arguments.gpus);
  json rows = json::array();
  std::optional<Outcome> first;
  std::string instead;
  for (const std::string& allocator : arguments.allocators) {
    if (arguments.allocators.size() > 1) {
      say(stderr, "gapless dryrun: with {}\n", allocator);
    }
    Outcome outcome = run_with(allocator, arguments);
    rows.insert(rows.end(), outcome.rows.begin(), outcome.rows.end());
    if (allocator == "gapless") instead = used_in_place(outcome.rows);
    if (!first) first = std::move(outcome);
  }
  const std::string& program = arguments.command.front();
  const int status = first->ended.status();
  if (rows.empty()) {
    say(stderr, "gapless dryrun: {}\n",
        no_gpu_used(program, first->ended, first->torch_without_cuda));
  } else {
    fmt::print(stderr, "\n{}", text_of_rows(rows, colour_wanted()));
  }
  if (arguments.json) write_json(arguments, rows);
  if (instead == "cudaMalloc") {
    fmt::print(
        stderr,
        "gapless dryrun: a program without PyTorch: its own cudaMalloc served it, not gapless "
        "(for such programs preload libgapless_cuda.so)\n");
    return kExitBadInput;
  }
  if (!instead.empty()) {
    say(stderr, "gapless dryrun: {} was used in place of gapless, as said above\n", instead);
    return kExitBadInput;
  }
  if (std::any_of(first->rows.begin(), first->rows.end(),
                  [](const json& row) { return row["fits"] == false; })) {
    return kExitNoFit;
  }
  if (status != 0 && !rows.empty()) {
    say(stderr, "gapless dryrun: {} ended with status {}\n", program, status);
  }
  return status;
}

}  // namespace

void add_dryrun(CLI::App& app, int& status) {
  auto arguments = std::make_shared<DryrunArguments>();
  CLI::App* command = app.add_subcommand(
      "dryrun",
      "Run a program on GPUs that are not there: does it fit, and how much does it take?\n"
      "The CUDA build of PyTorch runs unchanged; its kernels do nothing, its memory is real to the "
      "byte.\n"
      "\n"
      "Examples:\n"
      "  gapless dryrun --gpu 16GiB -- python train.py\n"
      "  gapless dryrun --gpu 16GiB --allocator gapless,native,expandable -- python train.py\n"
      "  gapless dryrun --gpu A100,A100 --allocator expandable -- torchrun --nproc-per-node 2 "
      "train.py\n"
      "  gapless dryrun --gpu 'RTX 4090' --record run.pickle -- python train.py; gapless replay "
      "run.*.pickle\n"
      "\n"
      "Exit status: the program's own (with the first allocator); 3 where one of its processes "
      "ended "
      "for lack of memory; 2 for bad input.");
  std::string names;
  for (const std::string& name : simgpu::gpu_profile_names()) {
    names += (names.empty() ? "" : ", ") + name;
  }
  command
      ->add_option(
          "-g,--gpu", arguments->gpus,
          "The GPUs, separated by commas: a size, a name, or NAME:SIZE. Known are " + names)
      ->capture_default_str();
  command
      ->add_option(
          "-a,--allocator", arguments->allocators,
          "gapless, or one of PyTorch's: native, expandable (segments), async (a model of "
          "cudaMallocAsync); or several, separated by commas: the program is run with each")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::IsMember({"gapless", "native", "expandable", "async"}));
  command->add_option("-c,--conf", arguments->conf, "gapless's options, as GAPLESS_CONF");
  command->add_option(
      "--record", arguments->record,
      "Write PyTorch's memory history: FILE run.pickle becomes run.PID.pickle, a snapshot "
      "with the source line of every allocation, for each process");
  CLI::Option* const to_json =
      command
          ->add_option(
              "--json", arguments->json_file,
              "Write one object per process and GPU to this file; without one, to standard "
              "output after all that the program printed")
          ->expected(0, 1);
  command->add_option("--context", arguments->context,
                      "What a CUDA context takes, in place of the GPU's usual figure");
  command->add_flag("--strict", arguments->strict,
                    "Stop at the first CUDA function that is not simulated, naming it");
  command->add_option("command", arguments->command, "The program and its arguments, after --")
      ->required();
  command->positionals_at_end();
  command->callback([arguments, to_json, &status] {
    arguments->json = to_json->count() != 0;
    status = run(*arguments);
  });
}

}  // namespace gapless::tools
