// What a kernel may have written to that no operator of PyTorch's tells of: whatever its arguments
// point to, unless they say that they only read there.
//
//   count<int>(int const*, int*, Sizes)      as its mangled name says, or its PTX (ptx/only_read.h)
//   0x7000'0000, 0x7000'0400, {3, 0x7000'0800}
//        only read,  forgotten,    forgotten: a structure's words may be pointers
//
// Such kernels come from a program's own extensions, from Triton and from NVRTC. Nothing is known
// any more from such an address on, to where nothing was known.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "simgpu/process/process.h"

namespace gapless::simgpu {

/// The sizes of a kernel's parameters in bytes, in their order; empty: not known, so that it may
/// have written anywhere.
using ParameterSizes = std::vector<std::size_t>;

/// Which parameters of the kernel of this mangled name are pointers to const; empty where the name
/// does not tell, as an extern "C" function's.
SIMGPU_API std::vector<bool> only_read_as_named(const std::string& mangled_name);

/// What the kernel does when it runs, for Streams::submit: nothing inside an operator. The
/// arguments are read now. `reads`: a flag for each that is only read through; empty: not known.
SIMGPU_API std::function<void()> forgets_what_it_writes(DeviceMemory& memory,
                                                        const std::vector<bool>& reads,
                                                        const ParameterSizes& sizes,
                                                        void** arguments);

}  // namespace gapless::simgpu
