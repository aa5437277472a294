#include "simgpu/process/stop_hook.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "simgpu/process/api.h"
#include "simgpu/process/process_record.h"
#include "simgpu/process/python_watch.h"
#include "simgpu/process/recorder.h"

namespace gapless::simgpu {
namespace {

using Word = std::uint32_t;
using Clock = std::chrono::steady_clock;

// Python's lock may be held by what takes long; a launcher that ends many is not to wait for each.
constexpr std::chrono::seconds kForLastWords{5};

std::atomic_ref<Word> shared(Word& word) { return std::atomic_ref<Word>(word); }

// Until the word is another, or so much time has gone by; also for no reason.
void wait_while(Word& word, Word value, const timespec* most) {
  (void)syscall(SYS_futex, &word, FUTEX_WAIT, value, most, nullptr, 0);
}

void change(Word& word, Word value) {
  shared(word).store(value);
  (void)syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Whether the signal ends this process, rather than being handled by it: what comes then is its
// own.
bool ends_by(int signal) {
  struct sigaction action {};
  return signal == SIGKILL ||
         (sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_DFL);
}

void* listen(void* given) {
  ProcessRecord& record = *static_cast<ProcessRecord*>(given);
  for (;;) {
    while (shared(record.asked_to_stop).load() == 0) wait_while(record.asked_to_stop, 0, nullptr);
    tell_python_of_stop();
    Recorder::get().note_host_memory();
    if (!ends_by(record.stopped_by)) {
      record.asked_to_end_by = record.stopped_by;
      record.stopped_by = 0;
    }
    change(record.asked_to_stop, 0);
  }
  return nullptr;
}

struct Asked {
  pid_t pid;
  ProcessRecord* record;
};

// Mapped; nullptr where that process has none, or has said how it ended.
ProcessRecord* record_of(const char* folder, pid_t pid) {
  std::string last;
  for (int image = 0; image < 1000; ++image) {
    const std::string path =
        std::string(folder) + "/" + std::to_string(pid) + "." + std::to_string(image) + ".gpu";
    if (access(path.c_str(), F_OK) != 0) break;
    last = path;
  }
  if (last.empty()) return nullptr;
  const int descriptor = open(last.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return nullptr;
  struct stat found {};
  void* mapped = MAP_FAILED;
  if (fstat(descriptor, &found) == 0 && found.st_size == sizeof(ProcessRecord)) {
    mapped =
        mmap(nullptr, sizeof(ProcessRecord), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  }
  close(descriptor);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const record = static_cast<ProcessRecord*>(mapped);
  if (record->magic == ProcessRecord::kMagic && record->end == ProcessRecord::End::none) {
    return record;
  }
  munmap(mapped, sizeof(ProcessRecord));
  return nullptr;
}

// Of all in the group, where `group`; else of that process alone.
std::vector<Asked> all_of(const char* folder, pid_t pid, bool group) {
  std::vector<Asked> records;
  const auto add = [&](pid_t one) {
    if (one == getpid() || !is_running(one)) return;
    ProcessRecord* const record = record_of(folder, one);
    if (record != nullptr) records.push_back({one, record});
  };
  if (!group) {
    add(pid);
    return records;
  }
  DIR* const files = opendir(folder);
  if (files == nullptr) return records;
  while (const dirent* const file = readdir(files)) {
    int one = 0;
    int image = 0;
    int length = 0;
    if (std::sscanf(file->d_name, "%d.%d.gpu%n", &one, &image, &length) == 2 && length != 0 &&
        image == 0 && getpgid(one) == pid) {
      add(one);
    }
  }
  closedir(files);
  return records;
}

bool is_to_end(int signal) {
  return signal == SIGTERM || signal == SIGKILL || signal == SIGINT || signal == SIGHUP ||
         signal == SIGQUIT;
}

void let_tell(pid_t pid, bool group, int signal) {
  const char* const folder = std::getenv("SIMGPU_REPORT_DIR");
  if (folder == nullptr || *folder == '\0' || !is_to_end(signal)) return;
  const std::vector<Asked> asked = all_of(folder, pid, group);
  for (const Asked& one : asked) {
    one.record->stopped_by = signal;
    one.record->told_before_stop = false;
    change(one.record->asked_to_stop, 1);
  }
  constexpr timespec kSlice{0, 100'000'000};
  const Clock::time_point deadline = Clock::now() + kForLastWords;
  for (const Asked& one : asked) {
    Word& word = one.record->asked_to_stop;
    while (shared(word).load() == 1 && Clock::now() < deadline && is_running(one.pid)) {
      wait_while(word, 1, &kSlice);
    }
    one.record->told_before_stop = shared(word).load() == 0 && one.record->stopped_by != 0;
    munmap(one.record, sizeof *one.record);
  }
}

}  // namespace

void hear_of_stop(ProcessRecord& record) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // the program's signals are for its own threads
  pthread_t thread{};
  if (pthread_create(&thread, nullptr, &listen, &record) == 0) pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace gapless::simgpu

// These stand in front of the C library's, in every process of the command.
extern "C" {

SIMGPU_API int kill(pid_t pid, int signal) noexcept {
  // 0: its own group; -1: everybody.
  if (pid != getpid() && pid != -1) {
    gapless::simgpu::let_tell(pid > 0 ? pid : pid < 0 ? -pid : getpgrp(), pid <= 0, signal);
  }
  return static_cast<int>(syscall(SYS_kill, pid, signal));
}

SIMGPU_API int killpg(pid_t group, int signal) noexcept {
  if (group < 0) {
    errno = EINVAL;
    return -1;
  }
  return kill(-group, signal);
}

}  // extern "C"
