// Handles between processes: exported as POSIX file descriptors.
#include <fcntl.h>

#include "simgpu/front/cuda/common.h"

using namespace gapless;
using namespace gapless::simgpu;

namespace {
constexpr int kPosixFileDescriptor = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
}

CUDA int cuMemExportToShareableHandle(void* exported, std::uint64_t handle, int type,
                                      unsigned long long) {
  if (type != kPosixFileDescriptor) return kInvalidValue;  // no fabric
  const Entry entry;
  const auto kind = entry.process.memory.model().kind_of(handle);
  if (!kind || kind->share != ShareType::fd) return kInvalidValue;
  const auto contents = entry.process.memory.model().share(handle);
  if (!contents) return kInvalidValue;
  const int file = fcntl(contents->file(), F_DUPFD_CLOEXEC, 0);
  if (file < 0) return kOutOfMemory;
  *static_cast<int*>(exported) = file;
  return kSuccess;
}

CUDA int cuMemImportFromShareableHandle(std::uint64_t* handle, void* exported, int type) {
  if (type != kPosixFileDescriptor) return kNotSupported;
  const Entry entry;
  const auto file = static_cast<int>(reinterpret_cast<std::intptr_t>(exported));
  return answer(entry.process.memory.model().import(SharedContents::open(file), *handle));
}
