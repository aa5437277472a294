// Recording: all that a file tells of memory: what happened, and what lay where at its end.
//
//   PyTorch snapshot --> events of each device that has some, segments of every device
//   other recordings --> events                    (gapless traces, logs of other allocators)
//   gapless dump     --> segments
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "allocator/report/memory_state.h"
#include "allocator/trace/trace.h"

namespace gapless {

struct Recording {
  std::vector<Trace> traces;  // one for each device with events
  /// What lay where when the file was written, of all devices; nothing where it does not tell.
  std::optional<MemoryState> now;
};

/// Opens a file of any kind, by its first bytes. Throws InputError.
Recording open_recording(const std::string& path);

/// What of that state is on one device.
MemoryState of_device(const MemoryState& state, DeviceIndex device);

}  // namespace gapless
