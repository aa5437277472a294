// Asks a running process about its memory, through its LivePage.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "allocator/live/live_page.h"

namespace gapless {

class LiveClient {
 public:
  /// Throws InputError that says why it cannot be: there is no such process, it is another user's,
  /// it does not run gapless, or its version is another.
  explicit LiveClient(int pid);
  LiveClient(const LiveClient&) = delete;
  LiveClient& operator=(const LiveClient&) = delete;
  ~LiveClient();

  /// The answer, which is JSON. Throws InputError where none comes within so long (the process is
  /// stopped, or busy), and with what the process says where it cannot do what is asked.
  std::string ask(const std::string& request, std::uint64_t most_ms = 5000);

  [[nodiscard]] int pid() const { return pid_; }

 private:
  [[noreturn]] void fail(const std::string& cause) const;

  int pid_;
  int descriptor_ = -1;
  LivePageLayout* page_ = nullptr;
};

/// The processes that have such a page and may be asked, by number; as this process knows them.
std::vector<int> live_processes();

}  // namespace gapless
