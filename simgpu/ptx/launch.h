// launch(): runs a kernel's grid on the CPU, and says what a checker would say of it.
//
//   grid of 300 blocks      some at a time, in turn, so that a block may wait for another
//     block of 128 threads  four warps in turn; barriers; shared memory
//       warp                32 lanes in lock step
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "simgpu/ptx/memory.h"
#include "simgpu/ptx/module.h"

namespace gapless::simgpu::ptx {

using Dim3 = std::array<unsigned, 3>;

/// What is wrong with a kernel.
struct Finding {
  enum class Kind : std::uint8_t {
    outside,     // an access to what is no memory
    misaligned,  // an address that is no multiple of the access's size
    race,        // two threads of a block, no barrier between, at least one writes
    barrier,     // a barrier that not all threads of the block reach
    stuck,       // all wait, for ever
    trap,        // the kernel's own assertion
    unknown      // an instruction that cannot be run
  };
  Kind kind = Kind::trap;
  std::string kernel;
  unsigned line = 0;        // of the PTX
  std::string instruction;  // "st.shared.f32"
  Dim3 block{};
  Dim3 thread{};
  std::string what;
};
/// "race in scale at line 31 (st.shared.f32), block (0,0,0), thread (33,0,0): ..."
std::string text_of(const Finding& finding);

struct LaunchSettings {
  Dim3 grid{1, 1, 1};
  Dim3 block{1, 1, 1};
  unsigned dynamic_shared_bytes = 0;
  bool judges_races = true;
  unsigned resident_blocks = 32;
  std::uint64_t most_instructions = 0;  // of warps; 0: no limit
  unsigned most_findings = 16;
};

struct LaunchResult {
  /// Outside accesses, traps and the like end a launch; races and misaligned barriers do not.
  bool completed = false;
  bool ran_out_of_instructions = false;
  std::vector<Finding> findings;
  std::uint64_t instructions = 0;  // of warps
  /// What lanes moved from and to global memory, in bytes.
  std::uint64_t global_read_bytes = 0;
  std::uint64_t global_written_bytes = 0;
};

/// `parameters`: as many bytes as the kernel has (Kernel::parameters says where each lies).
LaunchResult launch(const Kernel& kernel, const LaunchSettings& settings,
                    const std::vector<unsigned char>& parameters, GlobalMemory& memory);

}  // namespace gapless::simgpu::ptx
