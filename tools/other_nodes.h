// A command for one of several machines waits for the others, and here none will come.
//
//   torchrun --nnodes 2 --nproc-per-node 8 ...   -> all ranks on one machine: --nnodes 1,
//                                                   --nproc-per-node 16, and so many GPUs
#pragma once

#include <string>
#include <vector>

namespace gapless::tools {

/// A sentence where the command, or a shell script that it names, asks for several nodes by one of
/// the launchers' options; empty where not, or where how many is in a variable.
std::string other_nodes_note(const std::vector<std::string>& command);

}  // namespace gapless::tools
