// The parameters of a kernel in a compiled module (cubin), as its section ".nv.info.NAME" lists
// them:
//
//   format 4, attribute 0x17, 12 bytes | index | ordinal, offset | ... size << 18 |
//
// (The CUDA Binary Utilities print them as EIATTR_KPARAM_INFO.) Which of a launch's arguments may
// be pointers is known by that: those of eight bytes.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

namespace gapless::simgpu {

/// For each kernel of the module the sizes of its parameters, in bytes, in their order. Empty for
/// what is no ELF file; kernels without a list are left out.
std::unordered_map<std::string, std::vector<std::size_t>> kernel_parameters(const void* module);

}  // namespace gapless::simgpu
