// Why a process could use no GPU, for the command to tell where no process used one.
//
//   SIMGPU_REPORT_DIR/no_gpu    "its torch was built without CUDA (.../libtorch_cpu.so): install
//   ..."
#pragma once

#include <string>

#include "simgpu/process/api.h"

namespace gapless::simgpu {

/// Keeps it, in place of what was said before; nothing where no reports are wanted.
SIMGPU_API void note_why_no_gpu(const std::string& why);

}  // namespace gapless::simgpu
