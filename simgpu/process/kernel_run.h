// Kernels that a program brings as PTX are run on the CPU, where all that they read is known:
//
//   count<<<1, 32>>>(ids, counts)    ids came from the host, counts was filled with zeros
//     reads and writes               DeviceMemory's contents, which are known then as well
//   count<<<1, 32>>>(logits, ...)    it reads what nobody knows: stopped, and nothing is known of
//                                    what it may have written
//
// What is found wrong with it is told, and where it is an access to what is no memory or an
// assertion, the launch fails.
#pragma once

#include <functional>
#include <string>

#include "simgpu/process/device_code.h"
#include "simgpu/process/kernel_shape.h"
#include "simgpu/process/process.h"

namespace gapless::simgpu {

/// A module's variable starts with the bytes that PTX gives it, where the host has not written to
/// it before.
SIMGPU_API void start_variable(DeviceMemory& memory, const ptx::Variable& variable,
                               DeviceAddress address);

/// What the kernel does when it runs, for Streams::submit: nothing inside an operator of PyTorch's.
/// The arguments are read now. Process::kernel_error tells how it went.
SIMGPU_API std::function<void()> kernel_work(Process& process, DeviceCode& code,
                                             const std::string& mangled_name,
                                             const KernelShape& shape, void** arguments);

/// Whether a block may have that much shared memory on the current device.
SIMGPU_API bool has_shared_memory(const Process& process, const KernelShape& shape);

/// Whether a kernel on the current device may be given that attribute, a cudaFuncAttribute or
/// CUfunction_attribute: not more shared memory than there is.
SIMGPU_API bool may_have_attribute(const Process& process, int attribute, int value);

}  // namespace gapless::simgpu
