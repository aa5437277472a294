#include "simgpu/process/native_sites.h"

#include <new>
#include <string>

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <pthread.h>
#include <unistd.h>

namespace gapless::simgpu {

NativeSites& NativeSites::get() {
  static auto* const sites = [] {
    (void)pthread_atfork(nullptr, nullptr, [] { NativeSites::get().forget(); });
    return new NativeSites(Recorder::get());
  }();
  return *sites;
}

std::uint32_t NativeSites::here() {
  constexpr int kMostFrames = 64;
  std::vector<void*> stack(kMostFrames);
  stack.resize(static_cast<std::size_t>(backtrace(stack.data(), kMostFrames)));
  const std::scoped_lock lock(mutex_);
  if (const auto found = known_.find(stack); found != known_.end()) return found->second;
  if (known_.size() == kMost || !write(stack)) return 0;
  const auto number = static_cast<std::uint32_t>(known_.size() + 1);
  known_.emplace(std::move(stack), number);
  return number;
}

bool NativeSites::write(const std::vector<void*>& stack) {
  if (file_ < 0) {
    const std::string stem = recorder_.stem();
    if (stem.empty()) return false;  // before the first memory is had there is no report
    file_ = open((stem + ".sites").c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (file_ < 0) return false;
  }
  nlohmann::json frames = nlohmann::json::array();
  for (void* const address : stack) {
    Dl_info info{};
    // A call's return address may be the next line's.
    char* const call = static_cast<char*>(address) - 1;
    if (dladdr(call, &info) == 0 || info.dli_fname == nullptr) continue;
    frames.push_back({info.dli_fname, call - static_cast<char*>(info.dli_fbase),
                      info.dli_sname == nullptr ? "" : info.dli_sname});
  }
  const std::string line = nlohmann::json{{"native", std::move(frames)}}.dump(
                               -1, ' ', true, nlohmann::json::error_handler_t::replace) +
                           "\n";
  return ::write(file_, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

void NativeSites::forget() {
  new (&mutex_) std::mutex;  // another thread of the parent's may have held it
  if (file_ >= 0) close(file_);
  file_ = -1;
  known_.clear();
}

}  // namespace gapless::simgpu
