// A GPU that a process asked for by its number, and that is not there: most likely a program for
// several GPUs on one.
//
//   --gpu 20GiB -- torchrun --nproc-per-node 3 ...   rank 1 asks for GPU 1, and ends with an error
//   SIMGPU_REPORT_DIR/absent_gpu.1                   what there is, and what to say instead:
//                                                    --gpu 3x20GiB
#pragma once

#include <string>

#include "simgpu/process/api.h"
#include "simgpu/process/config.h"

namespace gapless::simgpu {

/// What to tell of a process that asked for that GPU. `gpus` is what SIMGPU_GPUS says;
/// `local_ranks` are as many as a launcher started here, where it says so (else -1).
std::string text_of_absent_gpu(int device, const Config& config, const std::string& gpus,
                               int local_ranks);

/// Keeps it for the command to tell; nothing where no reports are wanted.
SIMGPU_API void note_absent_gpu(int device, const Config& config);

}  // namespace gapless::simgpu
