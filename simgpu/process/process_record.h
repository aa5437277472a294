// ProcessRecord: what one process did with its simulated GPUs, written down while it happens.
//
//   SIMGPU_REPORT_DIR/4711.0.gpu    how it ended | out of memory: how often, first, last | calls |
//   GPU 0 | ... SIMGPU_REPORT_DIR/4711.1.gpu    the same of the program that process 4711 put in
//   its own place
//
// The file is mapped memory: it holds what is known whatever ends the process, for a signal leaves
// no time for last words. Reader and writer are of one build.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "allocator/driver/call.h"
#include "simgpu/process/step_memory.h"

namespace gapless::simgpu {

/// What a program came by that followed from what nobody knows: a number that it read back;
/// integers or flags, by which it may steer; the size of a tensor, which was made as large as it
/// can be (Unknown::most); a single flag, which it read to branch by it; or the size of a tensor,
/// as it happened to come. The last is the gravest.
enum class Estimate : int { number, integer, bound, flag, size };
constexpr int kEstimates = 5;

/// What stands in for numbers that nobody knows (simgpu/torch/guesses.h).
enum class Unknown : std::int32_t { zeros, noise, most };
inline constexpr const char* kUnknownNames[] = {"zeros", "noise", "most"};

struct ProcessRecord {
  static constexpr std::uint64_t kMagic = 0x6472796c70616701;
  static constexpr int kDevices = 128;  // more than PyTorch can count

  /// `none`: no word of it. `replaced`: another program runs in its place (exec).
  enum class End : std::uint32_t { none, exited, aborted, replaced };

  /// A request that failed for good: PyTorch's, after all that it does to find memory, or a plain
  /// program's cudaMalloc.
  struct OutOfMemory {
    std::int32_t device = -1;
    std::uint64_t asked_bytes = 0;
    std::uint64_t allocated_bytes = 0;  // by PyTorch; for a plain program what it has in use
    std::uint64_t reserved_bytes = 0;
  };

  struct Device {
    std::uint64_t total_bytes = 0;      // 0: not used
    std::int32_t capability = 0;        // compute capability: 80 for 8.0
    bool is_named = false;              // as a card, and not by its size alone
    std::int32_t installed_index = -1;  // among all there are, whatever the process sees of them
    std::uint64_t shared_per_block_bytes = 0;  // of kernels loaded by hand, at most
    /// When memory had been served: not what was made for a request that was then refused.
    std::uint64_t peak_used_bytes = 0;
    std::uint64_t peak_allocated_bytes = 0;  // by PyTorch's allocator, whichever that is
    std::uint64_t peak_reserved_bytes = 0;
    StepMemory by_step;
  };

  std::uint64_t magic = 0;
  End end = End::none;
  std::int32_t end_status = 0;  // what it exited with
  /// Of another process of the command, the last signal that is to end this one (0: it handles that
  /// itself), and whether it had said its last words before (stop_hook.h); 1 while it is asked to.
  std::int32_t stopped_by = 0;
  bool told_before_stop = false;
  /// The last such signal that it handles itself: it may end by its own exit then (Ray's workers
  /// do).
  std::int32_t asked_to_end_by = 0;
  std::uint32_t asked_to_stop = 0;
  std::int32_t rank = -1;
  bool has_torch = false;    // the CUDA build of PyTorch is in the process
  bool has_gapless = false;  // libgapless.so is, which serves plain programs
  bool has_adapter = false;  // gapless's for PyTorch is
  std::uint64_t out_of_memory = 0;
  /// Of those, how many it lived to be given memory again after.
  std::uint64_t survived = 0;
  OutOfMemory first;
  OutOfMemory last;
  /// Optimizer steps, of programs with Python.
  std::uint64_t steps = 0;
  /// Host memory that the GPUs reach: allocated as such or registered.
  std::uint64_t peak_pinned_bytes = 0;
  /// Managed memory, which moves (front/cudart/managed_memory.cc).
  std::uint64_t peak_managed_bytes = 0;
  /// Host memory that the process had resident, and how much of it was shared at most, which is
  /// where the simulated GPUs keep what they know. As far as it could say: a killed one, up to its
  /// last step.
  std::uint64_t peak_resident_bytes = 0;
  std::uint64_t peak_shared_bytes = 0;
  /// How often the program came by something that nobody knows, by Estimate.
  std::uint64_t estimates[kEstimates] = {};
  /// The compute capability that operators which ran are for, at least: 80 for 8.0; 0: any.
  std::int32_t needs_capability = 0;
  /// The library in front of PyTorch's operators is there (simgpu/torch).
  bool computes_numbers = false;
  Unknown unknown = Unknown::zeros;
  char unknown_workspaces[256] = {};  // libraries' names, each followed by a space
  char not_simulated[512] = {};  // what was asked for of that kind, a line each, as long as it fits
  PerDriverCall<std::uint64_t> calls{};
  Device devices[kDevices];
};

/// Nothing where the file is no record. `path` may be any file.
std::optional<ProcessRecord> read_record(const std::string& path);

/// Whether there is such a process, and it is no corpse that nobody has fetched.
bool is_running(int pid);

}  // namespace gapless::simgpu
