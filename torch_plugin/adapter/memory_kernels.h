// Memory that checks look through, read on the device: by the kernels of libgapless_kernels.so,
// where that lies beside this library.
//
//   poison of 2 GiB to be looked at   without kernels: 2 GiB to the host, to be compared there
//                                     gapless_memory_verify: 32 bytes to the host
#pragma once

#include "allocator/check/contents.h"

namespace gapless::torch_plugin {

/// Compares ranges of that device's memory; empty where there are no kernels. To be called with the
/// device's context current or not.
Contents::Comparer memory_kernels(DeviceIndex device);

}  // namespace gapless::torch_plugin
