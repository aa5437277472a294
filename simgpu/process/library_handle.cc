#include "simgpu/process/library_handle.h"

#include <cstring>

#include "simgpu/process/process.h"

namespace gapless::simgpu {

void submit_library_work(void* handle) {
  const Entry entry;
  entry.process.memory.ensure_context(Process::current());
  if (Stream* stream = entry.process.streams.find(handle, Process::current()); stream != nullptr) {
    entry.process.streams.submit(*stream, NodeKind::kernel, {});
  }
}

}  // namespace gapless::simgpu

using gapless::simgpu::LibraryHandle;

extern "C" {

int simgpu_work(const void* handle) {
  const auto* known = static_cast<const LibraryHandle*>(handle);
  if (known == nullptr || known->magic != LibraryHandle::kMagic) return 1;
  gapless::simgpu::submit_library_work(known->stream);
  return 0;
}

int simgpu_make(void* handle) {
  *static_cast<void**>(handle) = new LibraryHandle;
  return 0;
}

int simgpu_drop(void* handle) {
  auto* known = static_cast<LibraryHandle*>(handle);
  if (known == nullptr || known->magic != LibraryHandle::kMagic) return 0;
  known->magic = 0;
  delete known;
  return 0;
}

int simgpu_set_stream(void* handle, void* stream) {
  static_cast<LibraryHandle*>(handle)->stream = stream;
  return 0;
}

void simgpu_zero(void* target, int width, int count) {
  if (target == nullptr || count <= 0) return;
  const auto bytes = static_cast<std::uint64_t>(width) * static_cast<std::uint64_t>(count);
  const auto address = reinterpret_cast<std::uint64_t>(target);
  const gapless::simgpu::Entry entry;
  if (entry.process.memory.find(address)) {
    entry.process.memory.fill(address, 0, 1, bytes);
  } else {
    std::memset(target, 0, static_cast<std::size_t>(width));  // on the host it is a single number
  }
}

void simgpu_guess(const char* library) {
  const gapless::simgpu::Entry entry;
  entry.process.recorder.guessed(library);
}

}  // extern "C"
