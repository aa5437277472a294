#include "simgpu/process/library_handle.h"

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

extern "C" int simgpu_work(const void* handle) {
  const auto* known = static_cast<const gapless::simgpu::LibraryHandle*>(handle);
  if (known == nullptr || known->magic != gapless::simgpu::LibraryHandle::kMagic) return 1;
  gapless::simgpu::submit_library_work(known->stream);
  return 0;
}
