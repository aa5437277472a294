// PyTorch's memory snapshot as a pickle, from C++: what torch.cuda.memory._dump_snapshot() writes.
#pragma once

#include <string>

namespace gapless::torch_plugin {

/// Throws std::runtime_error where this torch does not have the function.
std::string pickled_snapshot();

}  // namespace gapless::torch_plugin
