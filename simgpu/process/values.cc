#include "simgpu/process/values.h"

#include "simgpu/abi/runtime_abi.h"
#include "simgpu/process/process.h"
#include "simgpu/process/python_watch.h"

using gapless::DeviceAddress;
using gapless::simgpu::Entry;
using gapless::simgpu::Knowledge;
using gapless::simgpu::Process;

namespace {

DeviceAddress device_address(const void* address) {
  return reinterpret_cast<DeviceAddress>(address);
}

// The memory, with the lock. Unlike Entry it lets no time pass: this is asked for with every
// operator.
class Memory {
 public:
  Memory() : process_(Process::get()), lock_(process_.mutex) {}
  gapless::simgpu::DeviceMemory* operator->() { return &process_.memory; }

 private:
  Process& process_;
  std::scoped_lock<std::recursive_mutex> lock_;
};

}  // namespace

SimgpuOperator* simgpu_operator() {
  [[gnu::tls_model("initial-exec")]] thread_local SimgpuOperator where;
  return &where;
}

void simgpu_makes_text(int change) { simgpu_operator()->texts += change; }

int simgpu_knowledge(const void* address, std::uint64_t bytes) {
  return static_cast<int>(Memory()->knowledge(device_address(address), bytes));
}

bool simgpu_knows_any(const void* address, std::uint64_t bytes) {
  return Memory()->knows_any_of(device_address(address), bytes);
}

int simgpu_flag_known(const void* numbers, std::uint64_t size, std::uint64_t count,
                      unsigned char* flags) {
  return static_cast<int>(
      Memory()->flag_known(device_address(numbers), size, count, Knowledge::likely, flags));
}

bool simgpu_may_keep(std::uint64_t bytes) { return Memory()->may_keep(bytes); }

bool simgpu_read_values(void* target, const void* address, std::uint64_t bytes) {
  return Memory()->read(target, device_address(address), bytes);
}

void simgpu_write_values(void* address, const void* source, std::uint64_t bytes, int knowledge) {
  Memory()->write(device_address(address), source, bytes, static_cast<Knowledge>(knowledge));
}

void simgpu_forget_values(void* address, std::uint64_t bytes) {
  Memory()->forget(device_address(address), bytes);
}

bool simgpu_captures() {
  Process& process = Process::get();
  const std::scoped_lock lock(process.mutex);
  return process.streams.any_capture();
}

void simgpu_graph_writes(void* graph, void* address, std::uint64_t bytes) {
  const Entry entry;
  static_cast<gapless::simgpu::Graph*>(graph)->writes.emplace_back(device_address(address), bytes);
}

void simgpu_estimated(int what) {
  gapless::simgpu::note_estimate(static_cast<gapless::simgpu::Estimate>(what));
}

void simgpu_needs_capability(int capability) {
  const Entry entry;
  entry.process.recorder.needed(capability);
}

void simgpu_asserts(const char* what) {
  {
    const Entry entry;
    if (entry.process.kernel_error != gapless::simgpu::abi::success) return;
    entry.process.kernel_error = gapless::simgpu::abi::assertion;
  }
  gapless::simgpu::tell_python_of_assertion(what);
}

SimgpuUnknown simgpu_unknown() {
  const auto& config = Process::get().config();
  return {config.unknown == gapless::simgpu::Unknown::noise,
          config.unknown == gapless::simgpu::Unknown::most, config.skew, config.seed};
}
