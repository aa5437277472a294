// Kernels: registered in their tens of thousands at import, launched to do nothing but make unknown
// what others than PyTorch's operators may have written. What those compute is known another way
// (simgpu/torch).
//
// Host code of CUDA 13 asks for a handle once (__cudaGetKernel) and launches that; older objects
// launch the host function itself. A handle here is the host function.
#include <algorithm>
#include <cstring>
#include <utility>

#include "simgpu/front/cudart/common.h"
#include "simgpu/process/kernel_run.h"
#include "simgpu/process/values.h"

using namespace gapless;
using namespace gapless::simgpu;

CUDART int cudaGetSymbolAddress(void** pointer, const void* symbol);

namespace {

struct CallConfiguration {
  abi::Dim3 grid;
  abi::Dim3 block;
  std::size_t shared_bytes;
  void* stream;
};

std::vector<CallConfiguration>& configurations() {
  thread_local std::vector<CallConfiguration> stack;
  return stack;
}

// What nvcc writes for each file with kernels.
struct FatBinaryWrapper {
  std::uint32_t magic;
  std::uint32_t version;
  const void* fat_binary;
  void* unused;
};

// A variable that the host knows of lies where cudaGetSymbolAddress says.
std::uint64_t place_of(const RegisteredModule& module, const ptx::Variable& variable) {
  const Entry entry;
  DeviceAddress address = 0;
  const auto host = module.variables.find(variable.name);
  if (host != module.variables.end()) {
    void* pointer = nullptr;
    if (cudaGetSymbolAddress(&pointer, host->second) != abi::success) return 0;
    address = reinterpret_cast<DeviceAddress>(pointer);
  } else if (entry.process.memory.alloc(Process::current(),
                                        std::max<std::uint64_t>(variable.bytes, 1),
                                        address) != DriverStatus::ok) {
    return 0;
  }
  start_variable(entry.process.memory, variable, address);
  return address;
}

int launch(const void* function, const KernelShape& shape, void** arguments, void* handle) {
  if (!is_launchable(shape)) return answer(abi::invalid_configuration);
  const Entry entry;
  Process& process = entry.process;
  Stream* stream = stream_of(process, handle);
  if (stream == nullptr) return answer(abi::invalid_resource_handle);
  if (!has_shared_memory(process, shape)) return answer(abi::invalid_value);
  auto& kernels = Process::registered().kernels;
  const auto found = kernels.find(function);
  std::function<void()> work;
  std::uint64_t busy_ns = 0;
  if (found != kernels.end() && arguments != nullptr) {
    const Kernel& kernel = found->second;
    busy_ns = duration_ns(kernel, arguments);
    work = kernel_work(process, *kernel.module->code, kernel.name, shape, arguments);
  }
  process.streams.submit(*stream, NodeKind::kernel, work, busy_ns, function);
  if (stream->capture) simgpu_operator()->graph = stream->capture->graph;
  return answer(process.kernel_error);
}

int set_attribute(int attribute, int value) {
  const Entry entry;
  return answer(may_have_attribute(entry.process, attribute, value) ? abi::success
                                                                    : abi::invalid_value);
}

KernelShape shape_of(const abi::Dim3& grid, const abi::Dim3& block, std::size_t shared_bytes) {
  return {
      {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, static_cast<unsigned>(shared_bytes)};
}

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier): CUDA's names, which nvcc calls
CUDART void** __cudaRegisterFatBinary(void* wrapper) {
  const std::scoped_lock lock(Process::mutex);
  auto* const module = new RegisteredModule;
  module->code = std::make_unique<DeviceCode>(
      wrapper == nullptr ? nullptr : static_cast<FatBinaryWrapper*>(wrapper)->fat_binary,
      [module](const ptx::Variable& variable) { return place_of(*module, variable); });
  return reinterpret_cast<void**>(module);
}
CUDART void __cudaRegisterFatBinaryEnd(void**) {}
CUDART void __cudaUnregisterFatBinary(void** handle) {
  // Its kernels may be asked for by name still; its code is gone.
  const std::scoped_lock lock(Process::mutex);
  reinterpret_cast<RegisteredModule*>(handle)->code->drop();
}
CUDART char __cudaInitModule(void**) { return 1; }
CUDART void __cudaRegisterFunction(void** handle, const char* host_function, char*,
                                   const char* name, int, void*, void*, void*, void*, int*) {
  const std::scoped_lock lock(Process::mutex);
  Process::registered().kernels[host_function] = {name, host_function,
                                                  reinterpret_cast<RegisteredModule*>(handle)};
}
CUDART void __cudaRegisterVar(void** handle, char* host_variable, char*, const char* name, int,
                              std::size_t bytes, int, int) {
  const std::scoped_lock lock(Process::mutex);
  reinterpret_cast<RegisteredModule*>(handle)->variables[name] = host_variable;
  Process::registered().variable_bytes[host_variable] = bytes;
}
CUDART void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, std::size_t, int,
                                     int) {}

CUDART unsigned __cudaPushCallConfiguration(abi::Dim3 grid, abi::Dim3 block,
                                            std::size_t shared_bytes, void* stream) {
  configurations().push_back({grid, block, shared_bytes, stream});
  return 0;
}
CUDART int __cudaPopCallConfiguration(abi::Dim3* grid, abi::Dim3* block, std::size_t* shared_bytes,
                                      void* stream) {
  if (configurations().empty()) return answer(abi::unknown);
  const CallConfiguration top = configurations().back();
  configurations().pop_back();
  *grid = top.grid;
  *block = top.block;
  *shared_bytes = top.shared_bytes;
  *static_cast<void**>(stream) = top.stream;
  return abi::success;
}

CUDART int __cudaGetKernel(void** kernel, const void* function) {
  *kernel = const_cast<void*>(function);
  return abi::success;
}
CUDART int cudaGetKernel(void** kernel, const void* function) {
  return __cudaGetKernel(kernel, function);
}
CUDART int __cudaLaunchKernel(void* kernel, abi::Dim3 grid, abi::Dim3 block, void** arguments,
                              std::size_t shared_bytes, void* stream) {
  return launch(kernel, shape_of(grid, block, shared_bytes), arguments, stream);
}
CUDART int cudaLaunchKernel(const void* function, abi::Dim3 grid, abi::Dim3 block, void** arguments,
                            std::size_t shared_bytes, void* stream) {
  return launch(function, shape_of(grid, block, shared_bytes), arguments, stream);
}
CUDART int cudaLaunchCooperativeKernel(const void* function, abi::Dim3 grid, abi::Dim3 block,
                                       void** arguments, std::size_t shared_bytes, void* stream) {
  return launch(function, shape_of(grid, block, shared_bytes), arguments, stream);
}
CUDART int cudaLaunchKernelExC(const abi::LaunchConfig* config, const void* function,
                               void** arguments) {
  return launch(function, shape_of(config->gridDim, config->blockDim, config->dynamicSmemBytes),
                arguments, config->stream);
}

// --- what a kernel is ----------------------------------------------------------------------------

CUDART int cudaFuncGetAttributes(abi::FuncAttributes* attributes, const void* function) {
  const Entry entry;
  const GpuProfile& gpu = entry.process.gpu(Process::current());
  std::memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  // torch refuses to train where its kernels seem to be for another architecture; CUB chooses what
  // it launches by it.
  const int version = gpu.major * 10 + gpu.minor;
  const auto& kernels = Process::registered().kernels;
  const auto found = kernels.find(function);
  int built = found == kernels.end() ? 0 : found->second.module->code->architecture(version);
  if (built == 0) built = version;
  attributes->ptxVersion = attributes->binaryVersion = built;
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(gpu.shared_per_block_optin_bytes);
  return abi::success;
}
CUDART int cudaFuncSetAttribute(const void*, int attribute, int value) {
  return set_attribute(attribute, value);
}
CUDART int cudaFuncSetCacheConfig(const void*, int) { return abi::success; }
CUDART int cudaKernelSetAttributeForDevice(void*, int attribute, int value, int) {
  return set_attribute(attribute, value);
}
CUDART int cudaFuncGetName(const char** name, const void* function) {
  const Entry entry;
  const auto& kernels = Process::registered().kernels;
  const auto found = kernels.find(function);
  if (found == kernels.end()) return answer(abi::invalid_device_function);
  *name = found->second.name.c_str();
  return abi::success;
}
CUDART int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int block_size,
                                                         std::size_t) {
  const Entry entry;
  const int threads = entry.process.gpu(Process::current()).threads_per_multiprocessor;
  *blocks = block_size <= 0 ? 1 : std::max(1, threads / block_size);
  return abi::success;
}
CUDART int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function,
                                                                  int block_size,
                                                                  std::size_t shared_bytes,
                                                                  unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block_size, shared_bytes);
}
CUDART int cudaOccupancyAvailableDynamicSMemPerBlock(std::size_t* bytes, const void*, int, int) {
  const Entry entry;
  *bytes = entry.process.gpu(Process::current()).shared_per_block_optin_bytes;
  return abi::success;
}
CUDART int cudaOccupancyMaxActiveClusters(int* clusters, const void*, const abi::LaunchConfig*) {
  *clusters = 1;
  return abi::success;
}
// NOLINTEND(bugprone-reserved-identifier)
