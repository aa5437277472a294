// MemoryTrace: what PyTorch's allocators of this process gave out and took back, one by one.
//
//   4711.0.memory   alloc 0x7f..00 8 MiB site 12 | holds 0x7f..00 parameters | step | free 0x7f..00
//
// It is written where SIMGPU_MEMORY_TRACE is set, beside the process's record, into mapped memory:
// it holds everything up to the last event whatever ends the process. What an event means by itself
// is said here; what it says of a block is worked out afterwards (simgpu/memory_holders.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "simgpu/process/api.h"

namespace gapless::simgpu {

class Recorder;

/// What memory is for. The order is that of tables; Python has the same numbers (watch_memory.py).
enum class Holder : std::uint8_t {
  unknown = 0,
  parameters = 1,
  gradients = 2,
  optimizer_states = 3,
  buffers = 4,         // of modules: running means and the like
  inputs = 5,          // copied from the host
  activations = 6,     // made while a module ran forward
  loss = 7,            // logits: what a loss's operators take and make, and the gradients of that
  backward = 8,        // made by the backward pass, gradients of parameters apart
  optimizer_step = 9,  // made while an optimizer made a step, its states apart
  workspaces = 10,     // handed to cuBLAS
  parameter_copies = 11,  // in another type or place: what autocast makes
};
inline constexpr std::size_t kHolders = 12;

struct MemoryEvent {
  enum class Kind : std::uint8_t {
    none = 0,           // the end
    alloc = 1,          // of `bytes` at `address`; `holder`: of what the thread was at
    free = 2,           // of what lies at `address`
    holds = 3,          // the block that `address` lies in is for `holder`
    copied = 4,         // what lies at `address` is a copy of what lies at `bytes`, cast or not
    step = 5,           // an optimizer step has ended
    out_of_memory = 6,  // a request of `bytes` has failed for good
    cut = 7,            // nothing more is written: the file would be too large
  };
  Kind kind = Kind::none;
  std::uint8_t device = 0;
  Holder holder = Holder::unknown;
  std::uint8_t unused = 0;
  std::uint32_t site = 0;  // a line of 4711.0.sites, from 1 on; 0 where unknown
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t reserved_bytes = 0;  // by the allocator, with that
};
static_assert(sizeof(MemoryEvent) == 32);

class SIMGPU_API MemoryTrace {
 public:
  /// Nothing is written after so many (1 GiB).
  static constexpr std::uint64_t kMostEvents = std::uint64_t{1} << 25;

  /// This process's, never destroyed.
  static MemoryTrace& get();
  /// Whether any is written: for places that are passed often.
  static bool wanted();

  /// Beside that recorder's file.
  explicit MemoryTrace(const Recorder& recorder) : recorder_(recorder) {}
  MemoryTrace(const MemoryTrace&) = delete;
  MemoryTrace& operator=(const MemoryTrace&) = delete;

  /// For any thread. Of a process without a record (recorder.h) nothing is kept.
  void add(const MemoryEvent& event);
  /// A library was given a workspace. Told with every matrix product: what was told is not told
  /// again until another is.
  void workspace(const void* address);

  /// What the calling thread is at.
  static Holder& scope();
  /// From where the calling thread asks for memory next.
  static std::uint32_t& site();

  /// In the child, after a fork.
  void forget();

 private:
  bool grow();

  const Recorder& recorder_;
  std::mutex mutex_;
  std::string path_;
  int file_ = -1;
  bool ended_ = false;
  MemoryEvent* chunk_ = nullptr;
  std::size_t in_chunk_ = 0;
  std::uint64_t chunks_ = 0;
  std::atomic<const void*> last_workspace_{nullptr};
};

/// The events of such a file, without `none`; none where it is no such file.
std::vector<MemoryEvent> read_memory_trace(const std::string& path);

}  // namespace gapless::simgpu

// What Python adds (simgpu/python/watch_memory.py).
extern "C" {
/// The blocks that these addresses lie in are for `holder`.
SIMGPU_API void simgpu_holds(int holder, const unsigned long long* addresses, std::size_t count);
SIMGPU_API void simgpu_copied(unsigned long long to, unsigned long long from);
/// What the calling thread allocates is for `holder` from now on; what it was before.
SIMGPU_API int simgpu_scope(int holder);
/// A function of Python's to be asked, by each thread that is about to ask for memory, from where
/// in the program it does. Null to be asked no more. Call it with Python's lock.
SIMGPU_API void simgpu_watch_sites(void* site);
}
