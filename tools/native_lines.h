// Lines of a program in C++, of the addresses that it wrote down (simgpu/process/native_sites.h).
//
//   train + 0x3c2  -- addr2line -->  train.cpp:42, in Net::forward
//   libtorch_cpu.so, _ZN2at4_ops6linear4callE...    what that line called: aten::linear
//
// Without debug information a function's name is what is left of a line; without addr2line (of
// binutils) only what the dynamic linker knows.
#pragma once

#include <vector>

#include "simgpu/memory_holders.h"

namespace gapless::tools {

/// Works out `line`, `called` and `at` of the sites that have native frames.
void tell_native_lines(std::vector<simgpu::MemorySite>& sites);

}  // namespace gapless::tools
