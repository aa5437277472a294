// c10::OutOfMemoryError, thrown by a library that is built without torch.
//
// PyTorch's Python bindings make torch.OutOfMemoryError of that type and of no other, and what
// CUDAPluggableAllocator calls must throw it itself: a null pointer becomes an AcceleratorError. So
// the exception is put together from what libc10 exports: its constructor, its table of virtual
// functions and its type. All three have been the same from torch 2.11 to 2.15; where one is
// missing, a std::runtime_error with the same text is thrown.
#pragma once

#include <string>

namespace gapless::torch_plugin {

[[noreturn]] void throw_out_of_memory(const std::string& text);

}  // namespace gapless::torch_plugin
