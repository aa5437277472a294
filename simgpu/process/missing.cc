#include "simgpu/process/missing.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>

#include "allocator/base/terminal_text.h"
#include "simgpu/process/recorder.h"

namespace {

void say(const std::string& text) {
  const char* path = std::getenv("SIMGPU_LOG");
  std::FILE* file = path == nullptr ? nullptr : std::fopen(path, "a");
  std::fputs(text.c_str(), file == nullptr ? stderr : file);
  if (file != nullptr) std::fclose(file);
}

}  // namespace

extern "C" int simgpu_missing(const char* library, const char* function, int status) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::scoped_lock lock(mutex);
  if (said.insert(function).second) {
    gapless::simgpu::Recorder::get().missed(function);
    say("simgpu: " + gapless::terminal_text(function) + " (" + library +
        ") is not simulated; it answers \"not supported\"\n");
  }
  const char* strict = std::getenv("SIMGPU_STRICT");
  if (strict != nullptr && *strict != '\0' && *strict != '0') {
    std::fprintf(stderr, "simgpu: stopped at %s, as SIMGPU_STRICT asks\n",
                 gapless::terminal_text(function).c_str());
    std::abort();
  }
  return status;
}
