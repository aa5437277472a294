// What the words of a program say before it runs: that it will not do what was meant.
//
//   gapless fits python train.py --gpu 16GiB     the program gets the option; an A100, of 80 GB, is
//                                                simulated
//   gapless fits -- torchrun --nnodes 2 ...      it waits for other machines (other_nodes.h)
//   gapless fits -- docker run IMAGE train.py    it runs where LD_PRELOAD does not reach
#pragma once

#include <string>
#include <vector>

#include "tools/simulated_run.h"

namespace gapless::tools {

/// A --gpu among the program's words that names a GPU to simulate ("16GiB", "T4", but not "0"),
/// where the command has none of its own; else empty.
std::string gpu_behind_program_note(const std::vector<std::string>& command,
                                    const SimulatedGpus& gpus);

/// That the program is started in a container, as another user or elsewhere, by a command that does
/// not pass on what it was started with; else empty. `who` is the command: "gapless fits".
std::string out_of_reach_note(const std::string& who, const std::vector<std::string>& command);

/// Says on standard error what there is to say, `who` says it.
void tell_of_words(const std::string& who, const std::vector<std::string>& command,
                   const SimulatedGpus& gpus);

}  // namespace gapless::tools
