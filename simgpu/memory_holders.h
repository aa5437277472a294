// MemoryHolders: what held a process's memory, of its trace (process/memory_trace.h).
//
//   alloc A 8 MiB (train.py:7, forward) | holds A parameters | alloc B 2 MiB (train.py:9) | free B
//     -> peak 10 MiB: parameters 8 MiB, other 2 MiB
//
// Each block has one holder for all its life, by what is known of it, surest first:
//
//   told, at any time of its life     parameters, gradients, optimizer states, buffers, workspaces
//   taken or made by a loss           loss; so is what such a block was copied from, and its copies
//   copied to a parameter             parameter_copies: weights before a cast, as they were loaded
//   moved or cast with its module     parameters, though the module may have given them up since
//   copied from the host              inputs; of a parameter's size, and kept for steps, it is an
//                                     average of weights or the like: parameter_copies
//   copied from a parameter           parameter_copies
//   what was going on at its birth    activations (a module's forward), backward, optimizer_step
//   nothing of that                   unknown
//
// So the parts of a moment add up to what was allocated, to the byte.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "simgpu/process/memory_trace.h"

namespace gapless::simgpu {

/// "parameters", "optimizer_states", ..., "other" for unknown: as JSON has them.
std::string name_of(Holder holder);

/// A place in the program that asked for memory.
struct MemorySite {
  Holder at = Holder::unknown;  // gradients, too, of a program in C++
  std::string line;             // "train.py:12"; empty where unknown
  std::string library_line;     // of the library that the user's line had called
  std::string called;           // the function of a library that the user's line called
  /// What part of PyTorch's means for several GPUs it was: "replicate", "scatter", "gather",
  /// "broadcast_coalesced", "reduce_add_coalesced", "distributed"; empty where none.
  std::string part;
  /// Of a program without Python: its stack, from the innermost on (process/native_sites.h), of
  /// which the rest is worked out.
  struct NativeFrame {
    std::string module;
    std::uint64_t offset = 0;  // in the module
    std::string symbol;        // mangled; empty where the dynamic linker knows none
  };
  std::vector<NativeFrame> native;
};
/// The places of a process, whose numbers begin with 1; none where there is no such file.
std::vector<MemorySite> read_memory_sites(const std::string& path);

/// What was live on a device at one moment.
struct MemoryMoment {
  std::uint64_t event = 0;  // its index in the trace
  std::uint64_t steps = 0;  // optimizer steps before it
  std::array<std::uint64_t, kHolders> held_bytes{};
  std::uint64_t allocated_bytes = 0;
  std::uint64_t reserved_bytes = 0;
  struct Place {
    std::uint32_t site = 0;
    Holder holder = Holder::unknown;
    std::uint64_t bytes = 0;
    std::uint64_t blocks = 0;
  };
  std::vector<Place> places;  // the most bytes first
};

/// A device's memory over the run.
struct MemoryCourse {
  int device = 0;
  MemoryMoment peak;  // of what was allocated, when it was first reached
  /// The last request that failed, and what was live then.
  std::optional<MemoryMoment> failed;
  std::uint64_t failed_bytes = 0;
  std::uint32_t failed_site = 0;
  /// The most in each part of the run, in order.
  struct Sample {
    std::array<std::uint64_t, kHolders> held_bytes{};
    std::uint64_t allocated_bytes = 0;
    std::uint64_t reserved_bytes = 0;  // the most
    std::uint64_t steps = 0;
  };
  std::vector<Sample> samples;
  /// The trace was cut: more came after it.
  bool cut = false;
};

/// A block of memory for all its life.
struct HeldBlock {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t begin = 0;  // events of the trace: it is live from this one,
  std::uint64_t end = 0;    // until this one; the largest number where it was never freed
  std::uint32_t site = 0;
  int device = 0;
  Holder holder = Holder::unknown;
};
/// All that were allocated, in order.
std::vector<HeldBlock> held_blocks(const std::vector<MemoryEvent>& events,
                                   const std::vector<MemorySite>& sites);

/// One for each device with allocations, by number, with at most so many samples.
std::vector<MemoryCourse> memory_courses(const std::vector<MemoryEvent>& events,
                                         const std::vector<MemorySite>& sites,
                                         std::size_t most_samples);

}  // namespace gapless::simgpu
