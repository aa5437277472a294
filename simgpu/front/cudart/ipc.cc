// Memory and events between processes, by 64 bytes that travel however the program likes.
//
// Memory: who has it, under which file descriptor; the other process opens that through /proc.
#include <cstring>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include "simgpu/front/cudart/common.h"

using namespace gapless;
using namespace gapless::simgpu;

namespace {

constexpr std::uint64_t kMagic = 0x6761706c65737363;

struct IpcHandle {  // cudaIpcMemHandle_t, cudaIpcEventHandle_t
  std::uint64_t magic;
  std::int32_t pid;
  std::int32_t file;
  std::uint64_t offset;
  unsigned char rest[40];
};
static_assert(sizeof(IpcHandle) == 64);

}  // namespace

CUDART int cudaIpcGetMemHandle(IpcHandle* handle, void* pointer) {
  const Entry entry;
  std::uint64_t offset = 0;
  const auto contents =
      entry.process.memory.share(reinterpret_cast<std::uint64_t>(pointer), offset);
  if (!contents) return answer(abi::invalid_value);
  *handle = {kMagic, getpid(), contents->file(), offset, {}};
  return abi::success;
}

CUDART int cudaIpcOpenMemHandle(void** pointer, IpcHandle handle, unsigned) {
  if (handle.magic != kMagic) return answer(abi::invalid_value);
  // CUDA refuses memory of the process itself.
  if (handle.pid == getpid()) return answer(abi::invalid_value);
  const std::string path =
      "/proc/" + std::to_string(handle.pid) + "/fd/" + std::to_string(handle.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return answer(abi::invalid_value);  // that process has ended, or is another user's
  const Entry entry;
  const DeviceAddress address = entry.process.memory.open_shared(SharedContents::open(file));
  close(file);
  if (address == 0) return answer(abi::invalid_value);
  *pointer = reinterpret_cast<void*>(address + handle.offset);
  return abi::success;
}

CUDART int cudaIpcCloseMemHandle(void* pointer) {
  const Entry entry;
  const auto span = entry.process.memory.find(reinterpret_cast<std::uint64_t>(pointer));
  if (!span) return answer(abi::invalid_value);
  return answer(entry.process.memory.free(span->begin));
}

// Work of another process is always done here: such an event was never recorded, and is complete.
CUDART int cudaIpcGetEventHandle(IpcHandle* handle, void*) {
  *handle = {kMagic, getpid(), -1, 0, {}};
  return abi::success;
}
CUDART int cudaIpcOpenEventHandle(void** event, IpcHandle handle) {
  if (handle.magic != kMagic) return answer(abi::invalid_value);
  const Entry entry;
  *event = entry.process.streams.create_event(Process::current(), 0);
  return abi::success;
}
