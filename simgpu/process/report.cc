#include "simgpu/process/report.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include <unistd.h>

#include "simgpu/process/process.h"

namespace gapless::simgpu {
namespace {

std::atomic<unsigned long long> unknown_reads{0};
std::atomic<unsigned long long> next_word{1000};
std::atomic<void (*)(unsigned long long)> watcher{nullptr};

// By the lock of the process.
std::set<std::string>& guesses() {
  static auto& libraries = *new std::set<std::string>;  // used until the very end of the process
  return libraries;
}

void write_report() {
  Process& process = Process::get();
  const std::string path =
      std::string(std::getenv("SIMGPU_REPORT_DIR")) + "/" + std::to_string(getpid()) + ".gpu.json";
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return;
  std::fputs("{\"gpus\": [", file);
  bool first = true;
  for (int device = 0; device < process.devices(); ++device) {
    if (!process.memory.has_context(device)) continue;
    std::fprintf(file, "%s{\"device\": %d, \"total_bytes\": %llu, \"peak_used_bytes\": %llu}",
                 first ? "" : ", ", device,
                 static_cast<unsigned long long>(process.memory.total_bytes(device)),
                 static_cast<unsigned long long>(process.memory.peak_used_bytes(device)));
    first = false;
  }
  std::fputs("], \"unknown_workspaces\": [", file);
  first = true;
  for (const std::string& library : guesses()) {
    std::fprintf(file, "%s\"%s\"", first ? "" : ", ", library.c_str());
    first = false;
  }
  std::fputs("], \"driver_calls\": {", file);
  first = true;
  for (std::size_t i = 0; i < kDriverCalls; ++i) {
    if (process.calls[i] == 0) continue;
    std::fprintf(file, "%s\"%s\": %llu", first ? "" : ", ",
                 std::string(name_of(static_cast<DriverCall>(i))).c_str(),
                 static_cast<unsigned long long>(process.calls[i]));
    first = false;
  }
  std::fputs("}}\n", file);
  std::fclose(file);
}

}  // namespace

void report_at_exit() {
  if (const char* folder = std::getenv("SIMGPU_REPORT_DIR"); folder != nullptr && *folder != '\0') {
    std::atexit(write_report);
  }
}

void note_guess(const char* library) {
  const Entry entry;
  guesses().insert(library);
}

void note_unknown_read() {
  const unsigned long long count = ++unknown_reads;
  unsigned long long word = next_word.load();
  if (count < word || !next_word.compare_exchange_strong(word, word * 10)) return;
  if (auto* callback = watcher.load(); callback != nullptr) callback(count);
}

}  // namespace gapless::simgpu

extern "C" void simgpu_watch_reads(void (*callback)(unsigned long long count)) {
  gapless::simgpu::watcher = callback;
}
