// How a process ends: told to the Recorder by exit, _exit, abort and exec.
#pragma once

namespace gapless::simgpu {

/// From now on the process's exit status is recorded, as it leaves by exit().
void record_exit();

}  // namespace gapless::simgpu
