#include "allocator/live/live_client.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "allocator/base/futex.h"
#include "allocator/base/json_text.h"

namespace gapless {
namespace {

using Clock = std::chrono::steady_clock;

std::string folder_of(int pid) { return "/proc/" + std::to_string(pid); }

// Calls f(name) for each entry until it says true; whether it did. errno says why there is none.
template <class F>
bool any_entry(const std::string& folder, F&& f) {
  DIR* const directory = ::opendir(folder.c_str());
  if (directory == nullptr) return false;
  bool found = false;
  while (const dirent* const entry = ::readdir(directory)) {
    if ((found = f(std::string(entry->d_name)))) break;
  }
  ::closedir(directory);
  if (!found) errno = 0;
  return found;
}

bool is_number(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The path of its page's descriptor; empty where it has none. errno: why it cannot be seen.
std::string page_path(int pid) {
  std::string path;
  const std::string folder = folder_of(pid) + "/fd";
  any_entry(folder, [&](const std::string& name) {
    std::array<char, 64> target{};
    const std::string link = folder + "/" + name;
    const ssize_t count = ::readlink(link.c_str(), target.data(), target.size() - 1);
    if (count < 0) return false;
    if (std::string(target.data()).rfind(std::string("/memfd:") + kLivePageName, 0) != 0) {
      return false;
    }
    path = link;
    return true;
  });
  return path;
}

// How the process knows itself, in its own container; 0 where that cannot be told.
std::uint32_t inner_pid(int pid) {
  std::ifstream file(folder_of(pid) + "/status");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("NSpid:", 0) != 0) continue;
    std::istringstream words(line.substr(6));
    std::uint32_t last = 0;
    for (std::uint32_t number = 0; words >> number;) last = number;
    return last;
  }
  return static_cast<std::uint32_t>(pid);
}

}  // namespace

void LiveClient::fail(const std::string& cause) const {
  throw InputError("process " + std::to_string(pid_) + ": " + cause);
}

LiveClient::LiveClient(int pid) : pid_(pid) {
  const std::string path = page_path(pid);
  if (path.empty()) {
    if (errno == ENOENT) fail("there is none");
    if (errno == EACCES || errno == EPERM) fail("it is another user's, or may not be looked into");
    fail("it does not use gapless (or has no memory of a GPU yet, or runs with live:off)");
  }
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor_ < 0) fail(std::string("cannot be asked: ") + std::strerror(errno));
  struct stat facts {};
  void* memory = MAP_FAILED;
  if (::fstat(descriptor_, &facts) == 0 && facts.st_size == sizeof(LivePageLayout)) {
    memory =
        ::mmap(nullptr, sizeof(LivePageLayout), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  }
  if (memory == MAP_FAILED) {
    ::close(descriptor_);
    fail("its gapless is of another version");
  }
  page_ = static_cast<LivePageLayout*>(memory);
  const char* wrong = nullptr;
  if (page_->magic != LivePageLayout::kMagic || page_->version != LivePageLayout::kVersion) {
    wrong = "its gapless is of another version, or ends";
  } else if (page_->pid != inner_pid(pid)) {
    wrong = "it was forked from a process that uses gapless, and has no memory of its own";
  }
  if (wrong == nullptr) return;
  (void)::munmap(page_, sizeof(LivePageLayout));
  ::close(descriptor_);
  fail(wrong);
}

LiveClient::~LiveClient() {
  (void)::munmap(page_, sizeof(LivePageLayout));
  ::close(descriptor_);
}

std::string LiveClient::ask(const std::string& request, std::uint64_t most_ms) {
  if (request.size() > LivePageLayout::kRequestBytes) fail("what is asked is too long");
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(most_ms);
  const auto left_ms = [&] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  };
  // One asks at a time; the lock goes with whoever holds it.
  while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (left_ms() <= 0) fail("others are asking it all the time");
    constexpr useconds_t kPauseUs = 2000;
    ::usleep(kPauseUs);
  }
  std::memcpy(page_->request, request.data(), request.size());
  page_->request_bytes.store(static_cast<std::uint32_t>(request.size()), std::memory_order_release);
  const std::uint32_t number = page_->requests.fetch_add(1, std::memory_order_release) + 1;
  futex_wake(page_->requests);
  std::uint32_t answered = page_->answers.load(std::memory_order_acquire);
  const auto waits = [&] { return static_cast<std::int32_t>(answered - number) < 0; };
  while (waits() && left_ms() > 0) {
    // In short naps: the process may be gone.
    constexpr std::int64_t kMostMs = 200;
    futex_wait(page_->answers, answered,
               static_cast<std::uint64_t>(std::clamp<std::int64_t>(left_ms(), 1, kMostMs)));
    answered = page_->answers.load(std::memory_order_acquire);
    if (waits() && ::access(folder_of(pid_).c_str(), F_OK) != 0) break;
  }
  std::string text;
  if (!waits()) {
    text.assign(page_->answer,
                std::min<std::size_t>(page_->answer_bytes, LivePageLayout::kAnswerBytes));
  }
  (void)::flock(descriptor_, LOCK_UN);
  if (waits()) {
    fail(::access(folder_of(pid_).c_str(), F_OK) != 0
             ? "it has ended"
             : "does not answer: it is stopped, or busy, or about to end");
  }
  nlohmann::json answer = nlohmann::json::parse(text, nullptr, false);
  if (!answer.is_object()) fail("its answer cannot be read");
  if (const auto error = answer.find("error"); error != answer.end() && error->is_string()) {
    fail(error->get<std::string>());
  }
  return text;
}

std::vector<int> live_processes() {
  std::vector<int> found;
  any_entry("/proc", [&](const std::string& name) {
    constexpr std::size_t kMostDigits = 9;
    if (!is_number(name) || name.size() > kMostDigits) return false;
    const int pid = std::stoi(name);
    if (!page_path(pid).empty()) {
      try {
        const LiveClient client(pid);
        found.push_back(pid);
      } catch (const InputError&) {  // it has ended since, or is a forked child
      }
    }
    return false;
  });
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace gapless
