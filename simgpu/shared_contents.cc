#include "simgpu/shared_contents.h"

#include <cstdio>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gapless::simgpu {

SharedContents::SharedContents(int file, DeviceIndex device, std::uint64_t bytes,
                               unsigned char* data)
    : file_(file), device_(device), bytes_(bytes), data_(data) {
  struct stat known {};
  if (fstat(file, &known) == 0) id_ = known.st_ino;
}

std::shared_ptr<SharedContents> SharedContents::map(int file, DeviceIndex device,
                                                    std::uint64_t bytes) {
  void* const data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (data == MAP_FAILED) {
    close(file);
    return nullptr;
  }
  return std::shared_ptr<SharedContents>(
      new SharedContents(file, device, bytes, static_cast<unsigned char*>(data)));
}

std::shared_ptr<SharedContents> SharedContents::make(DeviceIndex device, std::uint64_t bytes) {
  const std::string name = "simgpu-device-" + std::to_string(device);
  const int file = memfd_create(name.c_str(), MFD_CLOEXEC);
  if (file < 0) return nullptr;
  if (ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    close(file);
    return nullptr;
  }
  return map(file, device, bytes);
}

std::shared_ptr<SharedContents> SharedContents::open(int file) {
  // The file's name tells the device.
  char name[64] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  if (readlink(link.c_str(), name, sizeof name - 1) < 0) return nullptr;
  int device = 0;
  struct stat known {};
  if (std::sscanf(name, "/memfd:simgpu-device-%d", &device) != 1 || fstat(file, &known) != 0) {
    return nullptr;
  }
  const int own = fcntl(file, F_DUPFD_CLOEXEC, 0);
  return own < 0 ? nullptr : map(own, device, static_cast<std::uint64_t>(known.st_size));
}

SharedContents::~SharedContents() {
  munmap(data_, bytes_);
  close(file_);
}

void SharedContents::forget(std::uint64_t offset, std::uint64_t bytes) {
  constexpr std::uint64_t kPage = 4096;
  const std::uint64_t begin = (offset + kPage - 1) / kPage * kPage;
  const std::uint64_t end = (offset + bytes) / kPage * kPage;
  if (begin >= end) {
    std::memset(data_ + offset, 0, bytes);
    return;
  }
  std::memset(data_ + offset, 0, begin - offset);
  madvise(data_ + begin, end - begin, MADV_REMOVE);
  std::memset(data_ + end, 0, offset + bytes - end);
}

}  // namespace gapless::simgpu
