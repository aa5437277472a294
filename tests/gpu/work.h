// Work that keeps a stream busy for some milliseconds, on either kind of driver.
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/driver/driver.h"
#include "simgpu/sim_driver.h"

namespace gapless::testing {

/// Writes to that memory, again and again. On the libraries in front it takes no time.
inline void keep_busy(Driver& gpu, StreamHandle stream, DeviceAddress address,
                      std::uint64_t bytes) {
  if (auto* const simulated = dynamic_cast<simgpu::SimDriver*>(&gpu)) {
    const simgpu::Access access{address, bytes, true};
    simulated->launch(0, stream, 20'000'000, {&access, 1});
    return;
  }
  for (std::uint64_t written = 0; written < 32 * GiB; written += bytes) {
    gpu.memset_d32(0, address, 7, bytes / 4, stream);
  }
}

}  // namespace gapless::testing
