// SharedContents: what a handle holds, where several processes may see it.
//
//   process A   handle 7 --.
//                           >  memory file "simgpu-device-0", sparse
//   process B   handle 2 --'      (its descriptor travels, as the driver's does)
#pragma once

#include <cstdint>
#include <memory>

#include "allocator/driver/driver.h"

namespace gapless::simgpu {

class SharedContents {
 public:
  /// A new one, all zeros; nullptr where there is no memory file to be had.
  static std::shared_ptr<SharedContents> make(DeviceIndex device, std::uint64_t bytes);
  /// Of another process (or this one); nullptr for a descriptor that is no such file. The
  /// descriptor stays the caller's.
  static std::shared_ptr<SharedContents> open(int file);

  ~SharedContents();
  SharedContents(const SharedContents&) = delete;
  SharedContents& operator=(const SharedContents&) = delete;

  /// The same for everyone who opened it, and for nothing else on this machine.
  [[nodiscard]] std::uint64_t id() const { return id_; }
  [[nodiscard]] int file() const { return file_; }
  [[nodiscard]] DeviceIndex device() const { return device_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] unsigned char* data() const { return data_; }
  /// Zeros again, and no host memory.
  void forget(std::uint64_t offset, std::uint64_t bytes);

 private:
  SharedContents(int file, DeviceIndex device, std::uint64_t bytes, unsigned char* data);
  static std::shared_ptr<SharedContents> map(int file, DeviceIndex device, std::uint64_t bytes);

  int file_;
  std::uint64_t id_ = 0;
  DeviceIndex device_;
  std::uint64_t bytes_;
  unsigned char* data_;
};

}  // namespace gapless::simgpu
