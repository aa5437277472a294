// GlobalMemory: what a kernel's addresses lead to outside of the block.
#pragma once

#include <cstdint>
#include <string>

namespace gapless::simgpu::ptx {

class GlobalMemory {
 public:
  virtual ~GlobalMemory() = default;
  /// False where part of the range is no memory of the device; then nothing is read or written.
  virtual bool read(std::uint64_t address, void* target, std::uint64_t bytes) = 0;
  virtual bool write(std::uint64_t address, const void* source, std::uint64_t bytes) = 0;
  /// What lies there or next to it: "16 B after the end of 4096 B at 0x7f...".
  [[nodiscard]] virtual std::string describe(std::uint64_t address) const = 0;
};

}  // namespace gapless::simgpu::ptx
