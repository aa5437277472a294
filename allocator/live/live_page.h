// LivePage: what lets other programs of the same user ask a running process about its memory.
//
//   training process                                    gapless top, record --pid, dump --pid
//     memfd "gapless-live"   <---- /proc/PID/fd/7 ----    finds it, maps it
//     [ magic, version, pid | request | answer ]          writes a request, wakes the process
//     one thread, asleep until it is woken                reads the answer
//
// Nothing is published until somebody asks: it costs the program a thread that sleeps. The page is
// memory without a name in any file system, so that it is seen from outside of a container, leaves
// nothing behind, and is open to nobody but the process's user and root (/proc checks that).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace gapless {

inline constexpr const char* kLivePageName = "gapless-live";

/// As it lies in shared memory. Both texts are JSON.
struct LivePageLayout {
  static constexpr std::uint64_t kMagic = 0x0045564c53504147;  // "GAPSLVE", little endian
  static constexpr std::uint32_t kVersion = 1;
  static constexpr std::size_t kRequestBytes = std::size_t{8} << 10;
  static constexpr std::size_t kAnswerBytes = std::size_t{240} << 10;

  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t pid =
      0;  // as the process itself knows it: a forked child has the page, but no thread
  std::atomic<std::uint32_t> requests{0};       // a futex; how many there were
  std::atomic<std::uint32_t> answers{0};        // a futex; the number of the request last answered
  std::atomic<std::uint32_t> request_bytes{0};  // 0: none; set once the request stands there
  std::uint32_t answer_bytes = 0;
  char request[kRequestBytes] = {};
  char answer[kAnswerBytes] = {};
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

class LivePage {
 public:
  /// What is asked, to what is answered; what it throws is told the one who asks. Called by the
  /// page's thread.
  using Answer = std::function<std::string(std::string_view request)>;

  /// nullptr where the system has no such memory: the program goes on without.
  static std::unique_ptr<LivePage> open(Answer answer, std::function<void()> on_signal);
  LivePage(const LivePage&) = delete;
  LivePage& operator=(const LivePage&) = delete;
  ~LivePage();

  /// For a signal handler: the page's thread calls `on_signal` soon.
  void signal();
  /// In a forked child, where there is no such thread.
  void forget() { forgotten_ = true; }

 private:
  LivePage(int descriptor, LivePageLayout* page, Answer answer, std::function<void()> on_signal);
  void serve();
  void answer_request();

  int descriptor_;
  LivePageLayout* page_;
  Answer answer_;
  std::function<void()> on_signal_;
  std::atomic<bool> signalled_{false};
  std::atomic<bool> ending_{false};
  bool forgotten_ = false;
  std::thread thread_;
};

}  // namespace gapless
