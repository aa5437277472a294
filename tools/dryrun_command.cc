// gapless dryrun: does a program fit on GPUs that are not there?
//
//   gapless dryrun --gpu 16GiB -- python train.py
//     sets LD_PRELOAD (simgpu/front), SIMGPU_*, PyTorch's allocator settings; runs the program
//     <- one report for each process: by libsimgpu.so, and by sitecustomize.py for those with torch
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/driver/call.h"
#include "simgpu/front_libraries.h"
#include "simgpu/process/gpu_profile.h"
#include "tools/commands.h"
#include "tools/launch.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct DryrunArguments {
  std::string gpus = "A100";
  std::vector<std::string> allocators = {"native"};
  std::string conf;
  std::string record;
  std::string json_file;
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

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "gapless-dryrun-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
      throw InputError("cannot make a folder in " + fs::temp_directory_path().string());
    }
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

Variables variables_of(const DryrunArguments& arguments, const std::string& allocator,
                       const fs::path& reports) {
  const fs::path front = simgpu::front_folder();
  Variables variables = {{"SIMGPU_GPUS", arguments.gpus},
                         {"SIMGPU_REPORT_DIR", reports},
                         {"SIMGPU_SHARED", reports / "usage"},
                         {"PYTHONPATH", in_front(front / "python", std::getenv("PYTHONPATH"))}};
  const auto set = [&](const char* name, const std::string& value) {
    if (!value.empty()) variables.emplace_back(name, value);
  };
  set("SIMGPU_CONTEXT", arguments.context);
  set("SIMGPU_STRICT", arguments.strict ? "1" : "");
  set("SIMGPU_RECORD", arguments.record.empty() ? "" : fs::absolute(arguments.record).string());
  set("PYTORCH_CUDA_ALLOC_CONF", allocator_settings().at(allocator));
  // torch.compile looks for libcuda there.
  if (std::getenv("TRITON_LIBCUDA_PATH") == nullptr) set("TRITON_LIBCUDA_PATH", front);
  std::string preload = simgpu::preload_list(front);
  if (allocator == "gapless") {
    preload = in_front(preload_library(), preload.c_str());
    set("GAPLESS_CONF", arguments.conf);
  }
  set("LD_PRELOAD", preload);
  return variables;
}

json read_json(const fs::path& path) {
  std::ifstream file(path);
  return json::parse(file, nullptr, false);
}

// One object for each process that used a GPU, in the order of ranks and process numbers.
json collect(const fs::path& reports) {
  std::map<int, json> by_pid;
  for (const auto& entry : fs::directory_iterator(reports)) {
    const std::string name = entry.path().filename().string();
    const int pid = std::atoi(name.c_str());
    const json found = read_json(entry.path());
    if (found.is_discarded()) continue;
    json& process = by_pid[pid];
    process["pid"] = pid;
    if (name.ends_with(".gpu.json")) {
      process["gpus"] = found.value("gpus", json::array());
      process["unknown_workspaces"] = found.value("unknown_workspaces", json::array());
      process["driver_calls"] = found.value("driver_calls", json::object());
    } else if (name.ends_with(".torch.json")) {
      process["torch"] = found;
    }
  }
  std::vector<json> processes;
  for (auto& [pid, process] : by_pid) {
    const bool used = !process.value("gpus", json::array()).empty();
    if (used || process.contains("torch")) processes.push_back(std::move(process));
  }
  const auto rank = [](const json& process) {
    if (!process.contains("torch") || !process["torch"]["rank"].is_number()) return 1 << 20;
    return process["torch"]["rank"].get<int>();
  };
  std::stable_sort(processes.begin(), processes.end(),
                   [&](const json& a, const json& b) { return rank(a) < rank(b); });
  return processes;
}

// Calls by which memory is had, mapped and given back.
std::uint64_t memory_calls(const json& calls) {
  std::uint64_t sum = 0;
  for (const DriverCall call :
       {DriverCall::mem_create, DriverCall::mem_release, DriverCall::address_reserve,
        DriverCall::address_free, DriverCall::mem_map, DriverCall::mem_unmap,
        DriverCall::mem_set_access, DriverCall::mem_alloc, DriverCall::mem_free}) {
    sum += calls.value(std::string(name_of(call)), std::uint64_t{0});
  }
  return sum;
}

// Times the host waited for the device so that memory could be given back or used again: frees, and
// what the allocator says.
json stalls_of(const json& process, const json& device) {
  const std::uint64_t frees = process["driver_calls"].value("mem_free", std::uint64_t{0});
  return frees + device.value("waits", std::uint64_t{0});
}

// What the process used: a program may install gapless itself, or gapless could not be had for its
// torch (and said so).
std::string allocator_used(const json& torch, const std::string& asked) {
  const std::string used = torch.value("allocator", asked);
  if (used == "gapless") return used;
  if (asked != "gapless") return asked;
  const json devices = torch.value("devices", json::array());
  const bool allocated = std::any_of(devices.begin(), devices.end(), [](const json& device) {
    return device["peak_reserved_bytes"].get<std::uint64_t>() != 0;
  });
  return allocated ? used : asked;
}

json rows_of(const json& processes, const std::string& allocator, int exit_status) {
  json rows = json::array();
  for (const json& process : processes) {
    const json torch = process.value("torch", json::object());
    const json oom = torch.value("first_out_of_memory", json());
    for (const json& gpu : process.value("gpus", json::array())) {
      const int device = gpu["device"];
      json row = {{"pid", process["pid"]},
                  {"rank", torch.value("rank", json())},
                  {"device", device},
                  {"allocator", allocator_used(torch, allocator)},
                  {"total_bytes", gpu["total_bytes"]},
                  {"peak_used_bytes", gpu["peak_used_bytes"]},
                  {"peak_allocated_bytes", nullptr},
                  {"peak_reserved_bytes", nullptr},
                  {"steps", torch.value("steps", json())},
                  {"retries", nullptr},
                  {"stalls", nullptr},
                  {"driver_calls", process["driver_calls"]},
                  {"memory_calls", memory_calls(process["driver_calls"])},
                  {"fits", true},
                  {"out_of_memory", nullptr},
                  {"unknown_workspaces", process.value("unknown_workspaces", json::array())},
                  {"exit_status", exit_status}};
      for (const json& known : torch.value("devices", json::array())) {
        if (known["device"] != device) continue;
        row["name"] = known["name"];
        row["peak_allocated_bytes"] = known["peak_allocated_bytes"];
        row["peak_reserved_bytes"] = known["peak_reserved_bytes"];
        row["retries"] = known["retries"];
        row["stalls"] = stalls_of(process, known);
      }
      if (!oom.is_null() && oom["device"] == device) {
        row["fits"] = false;
        row["out_of_memory"] = oom;
      }
      if (torch.contains("record")) row["record"] = torch["record"];
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::string size_text(const json& bytes) {
  return bytes.is_number() ? format_bytes(bytes.get<std::uint64_t>()) : "-";
}

std::string count_text(const json& count) {
  return count.is_number() ? with_commas(count.get<std::uint64_t>()) : "-";
}

void print_table(const json& rows) {
  using Align = Table::Align;
  Table table({{"process", Align::left},
               {"gpu", Align::left},
               {"capacity"},
               {"allocator", Align::left},
               {"peak allocated"},
               {"peak reserved"},
               {"peak in use"},
               {"stalls"},
               {"driver calls"},
               {"steps"},
               {"fits", Align::left}});
  for (const json& row : rows) {
    const bool fits = row["fits"];
    const json& oom = row["out_of_memory"];
    const std::string verdict =
        fits ? "yes"
             : fmt::format("no: {} asked in step {} ({})", size_text(oom["asked_bytes"]),
                           oom["step"].get<int>(), oom["line"].get<std::string>());
    table.add({{row["rank"].is_number() ? fmt::format("rank {}", row["rank"].get<int>())
                                        : fmt::format("{}", row["pid"].get<int>())},
               {fmt::format("{}", row["device"].get<int>())},
               {size_text(row["total_bytes"])},
               {row["allocator"].get<std::string>()},
               {size_text(row["peak_allocated_bytes"])},
               {size_text(row["peak_reserved_bytes"])},
               {size_text(row["peak_used_bytes"])},
               {count_text(row["stalls"])},
               {count_text(row["memory_calls"])},
               {count_text(row["steps"])},
               {verdict, fits ? Colour::good : Colour::bad}});
  }
  fmt::print(stderr, "\n{}", table.text(colour_wanted()));
  std::set<std::string> unknown;
  for (const json& row : rows) {
    for (const json& library : row["unknown_workspaces"]) unknown.insert(library);
  }
  if (!unknown.empty()) {
    fmt::print(stderr, "peaks are lower bounds: workspaces of {} are not counted\n",
               fmt::join(unknown, ", "));
  }
}

int run(const DryrunArguments& arguments) {
  try {
    (void)simgpu::parse_gpus(arguments.gpus);
  } catch (const std::invalid_argument& error) {
    throw InputError(std::string("--gpu: ") + error.what());
  }
  if (!arguments.context.empty() && !parse_bytes(arguments.context)) {
    throw InputError("--context: \"" + arguments.context + "\" is no size");
  }
  fmt::print(stderr,
             "gapless dryrun: on simulated GPUs ({}). Sizes are real; numbers computed are not.\n",
             arguments.gpus);
  json rows = json::array();
  int first_status = kExitOk;
  bool first_fits = true;
  std::string instead;
  for (const std::string& allocator : arguments.allocators) {
    const bool several = arguments.allocators.size() > 1;
    if (several) fmt::print(stderr, "gapless dryrun: with {}\n", allocator);
    const TemporaryFolder reports;
    const int exit_status =
        run_program(arguments.command, variables_of(arguments, allocator, reports.path()));
    const json found = rows_of(collect(reports.path()), allocator, exit_status);
    if (&allocator == &arguments.allocators.front()) {
      first_status = exit_status;
      first_fits = std::all_of(found.begin(), found.end(),
                               [](const json& row) { return row["fits"].get<bool>(); });
    }
    for (const json& row : found) {
      if (allocator == "gapless" && row["allocator"] != allocator) instead = row["allocator"];
    }
    rows.insert(rows.end(), found.begin(), found.end());
  }
  if (!arguments.json_file.empty()) {
    std::ofstream file(arguments.json_file);
    file << rows.dump(1) << '\n';
    if (!file) throw InputError(arguments.json_file + ": cannot be written");
  }
  if (rows.empty()) {
    fmt::print(stderr,
               "gapless dryrun: the program used no GPU (no CUDA build of PyTorch, or a CUDA "
               "runtime linked into it, which cannot be simulated)\n");
  } else {
    print_table(rows);
  }
  if (!instead.empty()) {
    fmt::print(stderr, "gapless dryrun: {} was used in place of gapless, as said above\n", instead);
    return kExitBadInput;
  }
  if (!first_fits && first_status != 0) return kExitNoFit;
  if (first_status != 0) {
    fmt::print(stderr, "gapless dryrun: {} ended with status {}\n", arguments.command[0],
               first_status);
  }
  return first_status;
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
      "Exit status: the program's own (with the first allocator); 3 where it ended for lack of "
      "memory; 2 for bad input.");
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
  command->add_option("--json", arguments->json_file,
                      "Write one object per process and GPU to this file");
  command->add_option("--context", arguments->context,
                      "What a CUDA context takes, in place of the GPU's usual figure");
  command->add_flag("--strict", arguments->strict,
                    "Stop at the first CUDA function that is not simulated, naming it");
  command->add_option("command", arguments->command, "The program and its arguments, after --")
      ->required();
  command->positionals_at_end();
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace gapless::tools
