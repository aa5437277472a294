// Recorder: who writes the ProcessRecord of this process.
//
//   no GPU used yet      memory of its own: most processes of a command never get further
//   the first one used   a file in SIMGPU_REPORT_DIR, where that is set
//   a child by fork      nothing of the parent's; a file of its own once it uses a GPU itself
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include <sys/types.h>

#include "simgpu/process/api.h"
#include "simgpu/process/gpu_profile.h"
#include "simgpu/process/process_record.h"

namespace gapless::simgpu {

class SIMGPU_API Recorder {
 public:
  /// This process's, never destroyed: other libraries' destructors still use GPUs.
  static Recorder& get();
  /// nullptr in a process that never came near a GPU. For places where nothing may be made.
  static Recorder* if_any();

  /// Without a folder nothing is kept in files.
  explicit Recorder(std::string folder) : folder_(std::move(folder)) {}
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Who is to be told of the record once it is kept in a file, where it stays.
  void when_kept(void (*tell)(ProcessRecord&)) { when_kept_ = tell; }

  /// With the lock of the process.
  void count(DriverCall call) { ++at()->calls[static_cast<std::size_t>(call)]; }
  /// Something followed from what nobody knows. Whether it is the first of its kind.
  bool estimated(Estimate what) { return at()->estimates[static_cast<int>(what)]++ == 0; }
  /// Numbers are computed from now on, and this stands in for unknown ones.
  void computes(Unknown unknown) {
    at()->computes_numbers = true;
    at()->unknown = unknown;
  }

  // For any thread, with or without the lock of the process.
  /// The process was served memory and has so much of the device in use, which is the
  /// `installed`-th of all; the first time, its record is kept from then on.
  void used(int device, int installed, const GpuProfile& gpu, std::uint64_t used_bytes);
  /// An operator ran that is for this compute capability and newer (80: 8.0).
  void needed(std::int32_t capability) {
    at()->needs_capability = std::max(at()->needs_capability, capability);
  }
  /// A kernel that was loaded by hand was launched, whose blocks have so much shared memory.
  void launched(int device, std::uint64_t shared_bytes) {
    std::uint64_t& most = at()->devices[device].shared_per_block_bytes;
    most = std::max(most, shared_bytes);
  }
  /// The process has so much host memory that devices reach.
  void host_memory(std::uint64_t pinned_bytes, std::uint64_t managed_bytes);
  /// An optimizer has made a step.
  void step();
  /// PyTorch has given out memory, and has so much in all.
  void allocated(int device, std::uint64_t allocated_bytes, std::uint64_t reserved_bytes);
  /// It has taken memory back.
  void freed(int device, std::uint64_t allocated_bytes);
  /// Somebody was given memory, by whatever call.
  void served();
  /// A request failed for good.
  void ran_out(const ProcessRecord::OutOfMemory& request);
  /// CUDA refused memory: cudaMalloc, or the driver's own functions. To a plain program that is for
  /// good; the allocators of PyTorch (by either) and of gapless (by the driver's) make room and try
  /// again.
  void refused(int device, std::uint64_t bytes, std::uint64_t in_use_bytes, bool by_driver);
  /// Peaks are lower bounds from here on: what this library's workspaces take is not known.
  void guessed(const std::string& library);
  /// It asked for something that is not simulated: a function, or what it says in words.
  void missed(const std::string& what);

  /// Takes no lock: a process may end anywhere. What is said last counts; nothing in a process that
  /// has no record of its own (vfork).
  void end(ProcessRecord::End how, int status);

  /// What host memory the process takes. Takes no lock and allocates nothing.
  void note_host_memory();

  /// Whether the calling process has a file of its own.
  [[nodiscard]] bool kept() const;
  /// "FOLDER/4711.0": the file's name without its ending; empty where nothing is kept.
  [[nodiscard]] std::string stem() const;
  [[nodiscard]] const ProcessRecord& record() const { return *at(); }

  /// In the child, after a fork.
  void forget();

 private:
  [[nodiscard]] ProcessRecord* at() const { return at_.load(std::memory_order_relaxed); }
  void keep();
  void note_allocated(int device, std::uint64_t allocated_bytes);

  std::string folder_;
  std::string stem_;
  pid_t kept_by_ = 0;
  void (*when_kept_)(ProcessRecord&) = nullptr;
  bool child_of_user_ = false;  // forked by a process that had used a GPU: CUDA is not for it
  ProcessRecord own_;
  std::atomic<ProcessRecord*> at_{&own_};
  std::mutex mutex_;
};

}  // namespace gapless::simgpu
