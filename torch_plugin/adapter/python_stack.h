// The calling thread's Python frames, for recordings with stacks.
//
//   train.py:41 step  <-  train.py:80 <module>      a number in recorded_stacks()
//
// Threads that run no Python (autograd's own) have native frames instead. Takes Python's lock where
// the thread does not hold it, as PyTorch's history does: to be called with no lock held.
#pragma once

#include <cstdint>

namespace gapless::torch_plugin {

std::uint32_t python_stack();

}  // namespace gapless::torch_plugin
