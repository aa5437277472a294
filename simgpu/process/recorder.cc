#include "simgpu/process/recorder.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "simgpu/process/loaded_libraries.h"

namespace gapless::simgpu {
namespace {

std::string folder_from_environment() {
  const char* folder = std::getenv("SIMGPU_REPORT_DIR");
  return folder == nullptr ? "" : folder;
}

int rank_from_environment() {
  const char* text = std::getenv("RANK");
  if (text == nullptr || *text == '\0') return -1;
  char* end = nullptr;
  const long rank = std::strtol(text, &end, 10);
  return *end == '\0' && rank >= 0 && rank < 1 << 30 ? static_cast<int>(rank) : -1;
}

std::atomic<Recorder*> the_recorder{nullptr};

// Once each, as long as there is room.
template <std::size_t kBytes>
void note(char (&list)[kBytes], const std::string& word) {
  const std::size_t length = std::strlen(list);
  if (std::strstr(list, word.c_str()) != nullptr || length + word.size() >= kBytes) return;
  std::memcpy(list + length, word.c_str(), word.size() + 1);
}

bool in_range(int device) { return device >= 0 && device < ProcessRecord::kDevices; }

}  // namespace

Recorder& Recorder::get() {
  static auto* const recorder = [] {
    auto* made = new Recorder(folder_from_environment());
    the_recorder = made;
    pthread_atfork(nullptr, nullptr, [] { Recorder::if_any()->forget(); });
    return made;
  }();
  return *recorder;
}

Recorder* Recorder::if_any() { return the_recorder.load(); }

void Recorder::keep() {
  if (folder_.empty() || kept_by_ != 0 || child_of_user_) return;
  const pid_t pid = getpid();
  int descriptor = -1;
  std::string stem;
  for (int image = 0; descriptor < 0 && image < 1000; ++image) {
    stem = folder_ + "/" + std::to_string(pid) + "." + std::to_string(image);
    descriptor = open((stem + ".gpu").c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (descriptor < 0 && errno != EEXIST) break;
  }
  if (descriptor < 0) return;
  void* mapped = MAP_FAILED;
  if (ftruncate(descriptor, sizeof(ProcessRecord)) == 0) {
    mapped =
        mmap(nullptr, sizeof(ProcessRecord), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  }
  close(descriptor);
  if (mapped == MAP_FAILED) return;
  own_.magic = ProcessRecord::kMagic;
  own_.rank = rank_from_environment();
  own_.has_torch = own_.has_torch || !path_of_loaded("libc10_cuda.so").empty();
  own_.has_gapless = !path_of_loaded("libgapless.so").empty();
  own_.has_adapter = !path_of_loaded("libgapless_torch-").empty();
  std::memcpy(mapped, &own_, sizeof own_);
  stem_ = stem;
  kept_by_ = pid;
  at_.store(static_cast<ProcessRecord*>(mapped), std::memory_order_relaxed);
  if (when_kept_ != nullptr) when_kept_(*at());
}

void Recorder::used(int device, int installed, const GpuProfile& gpu, std::uint64_t used_bytes) {
  if (!in_range(device)) return;
  const std::scoped_lock lock(mutex_);
  keep();
  ProcessRecord::Device& of = at()->devices[device];
  of.installed_index = installed;
  of.total_bytes = gpu.total_bytes;
  of.capability = gpu.major * 10 + gpu.minor;
  of.is_named = gpu.is_named;
  of.peak_used_bytes = std::max(of.peak_used_bytes, used_bytes);
}

void Recorder::allocated(int device, std::uint64_t allocated_bytes, std::uint64_t reserved_bytes) {
  if (!in_range(device)) return;
  note_allocated(device, allocated_bytes);
  // Asked with every allocation, and nearly always there is nothing new.
  const ProcessRecord::Device& seen = at()->devices[device];
  if (allocated_bytes > seen.peak_allocated_bytes || reserved_bytes > seen.peak_reserved_bytes) {
    const std::scoped_lock lock(mutex_);
    at()->has_torch = true;
    ProcessRecord::Device& of = at()->devices[device];
    of.peak_allocated_bytes = std::max(of.peak_allocated_bytes, allocated_bytes);
    of.peak_reserved_bytes = std::max(of.peak_reserved_bytes, reserved_bytes);
  }
  served();
}

void Recorder::freed(int device, std::uint64_t allocated_bytes) {
  if (in_range(device)) note_allocated(device, allocated_bytes);
}

// Threads that allocate at one time may each have a word: what is told is of steps.
void Recorder::note_allocated(int device, std::uint64_t allocated_bytes) {
  at()->devices[device].by_step.note(allocated_bytes);
}

void Recorder::refused(int device, std::uint64_t bytes, std::uint64_t in_use_bytes,
                       bool by_driver) {
  if (at()->has_torch || (by_driver && at()->has_gapless)) return;
  ran_out({device, bytes, in_use_bytes, in_use_bytes});
}

void Recorder::served() {
  if (at()->survived == at()->out_of_memory) return;
  const std::scoped_lock lock(mutex_);
  at()->survived = at()->out_of_memory;
}

void Recorder::ran_out(const ProcessRecord::OutOfMemory& request) {
  const std::scoped_lock lock(mutex_);
  keep();
  note_host_memory();
  if (at()->out_of_memory++ == 0) at()->first = request;
  at()->last = request;
}

void Recorder::host_memory(std::uint64_t pinned_bytes, std::uint64_t managed_bytes) {
  const std::scoped_lock lock(mutex_);
  at()->peak_pinned_bytes = std::max(at()->peak_pinned_bytes, pinned_bytes);
  at()->peak_managed_bytes = std::max(at()->peak_managed_bytes, managed_bytes);
}

void Recorder::step() {
  const std::scoped_lock lock(mutex_);
  ++at()->steps;
  for (ProcessRecord::Device& device : at()->devices) {
    if (device.total_bytes != 0) device.by_step.step();
  }
  note_host_memory();
}

void Recorder::note_host_memory() {
  char text[4096];
  const int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  const ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0) return;
  text[length] = '\0';
  const auto bytes_of = [&text](const char* name) -> std::uint64_t {
    const char* const line = std::strstr(text, name);
    return line == nullptr ? 0 : std::strtoull(line + std::strlen(name), nullptr, 10) * 1024;
  };
  ProcessRecord& record = *at();
  record.peak_resident_bytes = std::max(record.peak_resident_bytes, bytes_of("VmHWM:"));
  record.peak_shared_bytes = std::max(record.peak_shared_bytes, bytes_of("RssShmem:"));
}

void Recorder::guessed(const std::string& library) {
  const std::scoped_lock lock(mutex_);
  note(at()->unknown_workspaces, library + " ");
}

void Recorder::missed(const std::string& what) {
  const std::scoped_lock lock(mutex_);
  note(at()->not_simulated, what + "\n");
}

void Recorder::end(ProcessRecord::End how, int status) {
  if (!kept()) return;
  note_host_memory();
  at()->end_status = status;
  at()->end = how;
}

bool Recorder::kept() const { return kept_by_ != 0 && kept_by_ == getpid(); }

std::string Recorder::stem() const { return kept() ? stem_ : ""; }

void Recorder::forget() {
  new (&mutex_) std::mutex;  // another thread of the parent's may have held it
  child_of_user_ = child_of_user_ || kept_by_ != 0;
  kept_by_ = 0;
  own_ = {};
  at_.store(&own_, std::memory_order_relaxed);
}

}  // namespace gapless::simgpu
