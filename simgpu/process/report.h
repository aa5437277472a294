// What a process used of its simulated GPUs, told when it ends.
//
// SIMGPU_REPORT_DIR/PID.gpu.json
//   {"gpus": [{"device": 0, "total_bytes": ..., "peak_used_bytes": ...}, ...],
//    "unknown_workspaces": ["libcudnn.so.9", ...]}
//
// Also programs that are no Python leave it. And the watch over what the host reads back.
#pragma once

#include <cstdint>

#include "simgpu/process/api.h"

namespace gapless::simgpu {

class Process;

/// Writes the report at exit, where SIMGPU_REPORT_DIR asks for it.
void report_at_exit();

/// Peaks are lower bounds from here on: what this library's workspaces take is not known.
void note_guess(const char* library);

/// The host read back memory whose contents nobody knows. Call it without the lock.
SIMGPU_API void note_unknown_read();

}  // namespace gapless::simgpu

extern "C" {
/// `callback` is called at the 1,000th, 10,000th, ... time that the host reads back data that was
/// not kept.
SIMGPU_API void simgpu_watch_reads(void (*callback)(unsigned long long count));
}
