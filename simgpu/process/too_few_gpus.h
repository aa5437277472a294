// Too few GPUs: a process asked for one that is not there, or sees none since CUDA_VISIBLE_DEVICES
// names others, or two ranks have the same one, which NCCL refuses. Most likely a program for
// several GPUs, or for a machine with several, is tried on one.
//
//   --gpu 20GiB -- torchrun --nproc-per-node 3 ...   rank 1 asks for GPU 1, and ends with an error
//   SIMGPU_REPORT_DIR/too_few_gpus.1                 what there is, and what to say instead:
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

/// What to tell of two of so many ranks of one communicator that have the installed GPU of that
/// number.
std::string text_of_shared_gpu(int installed_index, int rank, int other, int ranks,
                               const Config& config, const std::string& gpus);

/// What to tell of a process that sees none of the GPUs, by what CUDA_VISIBLE_DEVICES says there;
/// empty where that names none at all.
std::string text_of_hidden_gpus(const std::string& visible, const Config& config,
                                const std::string& gpus);

/// Keep it for the command to tell; nothing where no reports are wanted.
SIMGPU_API void note_absent_gpu(int device, const Config& config);
SIMGPU_API void note_hidden_gpus(const Config& config);
SIMGPU_API void note_shared_gpu(int installed_index, int rank, int other, int ranks,
                                const Config& config);

}  // namespace gapless::simgpu
