#include "bench/replay/in_torch.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "allocator/base/json_text.h"
#include "allocator/trace/compact_format.h"
#include "bench/peers/torch_settings.h"
#include "simgpu/front_libraries.h"

namespace gapless::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// GAPLESS_TORCH_HOST, or beside the running command; of several, that of the oldest torch, whose
// constants the models have. Empty where there is none.
std::string find_host() {
  if (const char* path = std::getenv("GAPLESS_TORCH_HOST"); path != nullptr) return path;
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(here)) {
    if (entry.path().filename().string().starts_with("torch_host-")) found.push_back(entry.path());
  }
  return found.empty() ? "" : *std::min_element(found.begin(), found.end());
}

std::string host_path() {
  std::string path = find_host();
  if (path.empty()) {
    throw InputError(
        "PyTorch's own allocators need torch_host, which is built where a CUDA build of torch is: "
        "cmake --preset release -DGAPLESS_TORCH_DIR=.../site-packages/torch");
  }
  return path;
}

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& contents) {
    path_ = (fs::temp_directory_path() / "gapless-XXXXXX.gtrace").string();
    const int file = mkstemps(path_.data(), 7);
    if (file < 0) throw InputError(path_ + ": " + std::strerror(errno));
    close(file);
    write_file(path_, contents);
  }
  ~TemporaryFile() { std::remove(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// What the command prints; its error output goes to ours.
std::string output_of(const std::vector<std::string>& words,
                      const std::vector<std::pair<std::string, std::string>>& environment) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) throw InputError(std::strerror(errno));
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipe_ends[1], STDOUT_FILENO);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(pipe_ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(pipe_ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(got));
  }
  close(pipe_ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw InputError(words[0] + ": cannot be run, or failed (wait status " +
                     std::to_string(status) + ")");
  }
  return text;
}

}  // namespace

std::vector<std::string> torch_allocator_names() { return {"torch-native", "torch-expandable"}; }

bool has_torch_host() { return !find_host().empty(); }

bool is_in_torch(const std::string& allocator) { return allocator.starts_with("torch-"); }

ReplayResult replay_in_torch(const Trace& trace, const std::string& allocator,
                             std::uint64_t capacity_bytes, const ReplayOptions& options) {
  const auto settings = torch_settings(allocator.substr(std::string("torch-").size()));
  if (!settings) throw std::invalid_argument("unknown allocator \"" + allocator + "\"");
  std::string conf = allocator_conf(allocator);
  if (settings->expandable)
    conf += (conf.empty() ? "" : ",") + std::string("expandable_segments:True");
  const std::string host = host_path();
  const TemporaryFile file(write_compact({trace}));
  const std::string text =
      output_of({host, file.path(), std::to_string(options.passes),
                 options.time_operations ? "1" : "0", options.keep_course ? "1" : "0"},
                {{"TORCH_CPP_LOG_LEVEL", "ERROR"},  // newer versions warn of every refusal
                 {"LD_PRELOAD", simgpu::preload_list(simgpu::front_folder())},
                 {"SIMGPU_GPUS", std::to_string(capacity_bytes)},
                 {"SIMGPU_CONTEXT", "0"},
                 {"PYTORCH_CUDA_ALLOC_CONF", conf}});
  ReplayResult result = from_text(text);
  result.trace = trace.name;
  result.device = trace.device;
  result.allocator = allocator;
  return result;
}

std::string to_text(const ReplayResult& result) {
  const auto counts = [](const DriverCallCounts& of) { return json(of.calls); };
  json course = json::array();
  for (const PassCourse& pass : result.course) {
    json columns = json::array();
    for (const CourseColumn& column : pass) {
      columns.push_back({column.allocated_bytes, column.reserved_bytes});
    }
    course.push_back(std::move(columns));
  }
  return json_text({{"events", result.events},
                    {"operations", result.operations},
                    {"peak_allocated_bytes", result.peak_allocated_bytes},
                    {"peak_reserved_bytes", result.peak_reserved_bytes},
                    {"first_pass", counts(result.first_pass)},
                    {"last_pass", counts(result.last_pass)},
                    {"all_passes", counts(result.all_passes)},
                    {"calls_per_1000_allocations", result.calls_per_1000_allocations},
                    {"times", {result.times.mean_ns, result.times.p50_ns, result.times.p99_ns}},
                    {"fits", result.fits},
                    {"failed_pass", result.failed_pass},
                    {"failed_event", result.failed_event},
                    {"failed_bytes", result.failed_bytes},
                    {"course", std::move(course)}});
}

ReplayResult from_text(const std::string& text) {
  ReplayResult result;
  try {
    const json row = json::parse(text);
    result.events = row.at("events");
    result.operations = row.at("operations");
    result.peak_allocated_bytes = row.at("peak_allocated_bytes");
    result.peak_reserved_bytes = row.at("peak_reserved_bytes");
    row.at("first_pass").get_to(result.first_pass.calls);
    row.at("last_pass").get_to(result.last_pass.calls);
    row.at("all_passes").get_to(result.all_passes.calls);
    result.calls_per_1000_allocations = row.at("calls_per_1000_allocations");
    const auto& times = row.at("times");
    result.times = {times.at(0), times.at(1), times.at(2)};
    result.fits = row.at("fits");
    result.failed_pass = row.at("failed_pass");
    result.failed_event = row.at("failed_event");
    result.failed_bytes = row.at("failed_bytes");
    for (const json& columns : row.at("course")) {
      PassCourse& pass = result.course.emplace_back();
      for (const json& column : columns) pass.push_back({column.at(0), column.at(1)});
    }
  } catch (const json::exception& error) {
    throw InputError(std::string("torch_host: its answer cannot be read: ") + error.what());
  }
  return result;
}

}  // namespace gapless::bench
