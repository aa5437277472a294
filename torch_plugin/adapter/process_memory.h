// How much of a device each process uses, as the driver's management library (NVML) tells it: for
// the message of a request that failed.
#pragma once

#include <cstdint>
#include <string>

namespace gapless::torch_plugin {

/// "Process 4711 has 14.94 GiB memory in use. " for each process, as PyTorch writes it; where NVML
/// is not there, `used_bytes` of "Including non-PyTorch memory, this process has ...".
std::string processes_text(int device, std::uint64_t used_bytes);

/// Bytes as PyTorch writes them: "512 bytes", "1.50 KiB", "2.32 GiB".
std::string torch_size(std::uint64_t bytes);

}  // namespace gapless::torch_plugin
