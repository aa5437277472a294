// Answers: what a driver says to a script of calls, to be held against what another one says.
//
//   script.ask(DriverCall::mem_map, "where memory is mapped", [&] { return gpu.mem_map(at, page,
//   b); });
//
//   cuMemMap   where memory is mapped    CUDA_ERROR_INVALID_VALUE (simulated)    CUDA_SUCCESS
//   (NVIDIA H100)
//
// A script asks the same whatever it is told, so answers are compared one by one. Each is noted
// before the call is made, too: a driver that ends the process has said something as well.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "allocator/driver/call.h"
#include "allocator/driver/driver.h"
#include "tests/gpu/graphs.h"

namespace gapless::testing {

struct Answer {
  std::string call;  // as CUDA names it
  std::string with;  // what it was asked
  std::string said;  // empty: it is being asked
  /// ok, out_of_memory, not_ready, error: what an allocator goes by. Empty for other facts.
  std::string kind;
};

class Script {
 public:
  using Tell = std::function<void(const Answer&)>;
  /// `timed`: work on the devices that are compared takes time.
  Script(Driver& driver, Graphs& captures, const DeviceProperties& device, bool timed, Tell tell)
      : gpu(driver),
        graphs(captures),
        properties(device),
        page(device.granularity_bytes),
        work_takes_time(timed),
        tell_(std::move(tell)) {}

  /// Makes the call and notes what it answered, which it returns.
  DriverStatus ask(DriverCall call, const std::string& with,
                   const std::function<DriverStatus()>& make);
  /// Notes another fact about what a call did.
  void note(DriverCall call, const std::string& with, const std::string& fact);
  void note(DriverCall call, const std::string& with, bool fact) {
    note(call, with, std::string(fact ? "yes" : "no"));
  }

  // What scripts begin with; not noted. Each must succeed: else the script cannot be run, and
  // throws.
  MemHandle create(std::uint64_t pages = 1);
  DeviceAddress reserve(std::uint64_t pages);
  /// Side by side, accessible.
  DeviceAddress map(const std::vector<MemHandle>& handles);
  StreamHandle stream();
  EventHandle event();
  std::uint64_t free_bytes();
  std::uint32_t word(DeviceAddress address);

  Driver& gpu;
  Graphs& graphs;
  const DeviceProperties& properties;
  const std::uint64_t page;
  const bool work_takes_time;

 private:
  Tell tell_;
};

struct NamedScript {
  const char* name;
  void (*run)(Script&);
  /// It does what no program may: the driver may end the process, or spoil the context for all that
  /// follows.
  bool wild = false;
};

std::span<const NamedScript> memory_scripts();
std::span<const NamedScript> stream_scripts();
std::span<const NamedScript> capture_scripts();
inline std::vector<NamedScript> scripts(bool wild) {
  std::vector<NamedScript> chosen;
  for (const auto of : {memory_scripts(), stream_scripts(), capture_scripts()}) {
    for (const NamedScript& script : of) {
      if (script.wild == wild) chosen.push_back(script);
    }
  }
  return chosen;
}

/// "CUDA_ERROR_ALREADY_MAPPED", also where the core has no name for it.
std::string words(DriverStatus status);

}  // namespace gapless::testing
